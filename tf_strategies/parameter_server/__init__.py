"""Training on parameter servers, asynchronous or synchronous with backup workers.

From the top down:

    async_strategy, sync_replicas   the public strategies; strategy has their common base
    extended, access                the interface of tf.distribute; reads and writes of variables
    sessions/                       sessions of TensorFlow 1, as Estimator uses them
    updates/                        the update rules: asynchronous, synchronous; one step of each
    variables/                      variables in parts, and which server holds which part
    cluster/                        servers, membership, heartbeats, failure detection, transport
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
