"""The communicator of one worker that takes steps by itself before it joins others. It uses no network."""

from __future__ import annotations

from tf_strategies.native import core, host
from tf_strategies.native.communicator import make_findable
from tf_strategies.native.data_plane import fitting
from tf_strategies.native.instances import InstanceNumbers
from tf_strategies.options import CommunicationOptions

__all__ = ["SoloCommunicator"]


class SoloCommunicator:
    """Runs collectives in which this worker is the only one. It is open until `close`.

    Args:
        name: the name of the worker, for messages.
        options: the options of communication.

    Attributes:
        id: the number that identifies the communicator in operations.
    """

    def __init__(self, name: str, options: CommunicationOptions) -> None:
        self._instances = InstanceNumbers()
        self.id = core.open_communicator(
            core.transport_of_sockets(rank=0, sockets=[-1]),
            ranks_per_host=1,
            ranks_here=1,
            by_network=True,
            peer_names=[name],
            algorithm=fitting(options, [host.identity()]).algorithm,
            chunk_bytes=options.chunk_bytes,
            timeout=options.timeout,
            verdict_timeout=0.0,
        )
        make_findable(self)

    def next_instance(self, name: str, *, count: int = 1) -> int:
        """Does the same as `Communicator.next_instance`."""
        return self._instances.next(name, count)

    @property
    def has_functions(self) -> bool:
        """Does the same as `Communicator.has_functions`."""
        return self._instances.has_functions

    def close(self) -> None:
        """Closes the communicator. Its collectives fail from now on."""
        core.close(self.id)
