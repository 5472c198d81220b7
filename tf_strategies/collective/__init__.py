"""Synchronous training by all-reduce: `CollectiveAllReduceStrategy`."""

from tf_strategies.collective.exchange.communication_stats import CollectiveStats, CommunicationStats
from tf_strategies.collective.strategy import CollectiveAllReduceStrategy

__all__ = ["CollectiveAllReduceStrategy", "CollectiveStats", "CommunicationStats"]
