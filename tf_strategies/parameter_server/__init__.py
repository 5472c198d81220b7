"""Training on parameter servers, asynchronous or synchronous with backup workers.

The way of one step, from the top down:

    async_strategy, sync_replicas   what a user makes       strategy        what they have in common
    extended                        tf.distribute's face    variables       variables in parts, on servers
    asynchronous, synchronous       update rules            update_rule     their common face
    access, step, wires             reads and writes; each value travels once a step
    servers, connection             where variables live    placement       which server holds what
    membership                      this worker in the servers' ledgers
    guard, pulse                    whether servers and workers are alive
    server                          what a `ps` process does
"""

from tf_strategies.parameter_server.async_strategy import AsyncParameterServerStrategy
from tf_strategies.parameter_server.errors import ServerLostError
from tf_strategies.parameter_server.sync_replicas import GradientCounts, SyncReplicasStrategy
from tf_strategies.parameter_server.updates.staleness import StalenessStats

__all__ = [
    "AsyncParameterServerStrategy",
    "GradientCounts",
    "ServerLostError",
    "StalenessStats",
    "SyncReplicasStrategy",
]
