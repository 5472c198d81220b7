"""The end of a worker in the connections of its group: how workers of a host and of several hosts reach each other.

opening     chooses one of these:
by_host       shared memory within a host, our TCP between hosts
tcp           our TCP between all workers
ucx           UCX between all workers
endpoint    what they have in common
mesh        connects the ranks by TCP, each pair once
meeting       the handshakes of one rank while it does
"""

from tf_strategies.native.endpoints.endpoint import Endpoint, Settings
from tf_strategies.native.endpoints.opening import open_endpoint

__all__ = ["Endpoint", "Settings", "open_endpoint"]
