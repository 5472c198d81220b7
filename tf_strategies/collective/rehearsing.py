"""Stands for the connections of a newcomer while it takes a step by itself, before it joins the others."""

from __future__ import annotations

from tf_strategies.cluster import Cluster
from tf_strategies.collective.unconnected import Unconnected
from tf_strategies.native.solo import SoloCommunicator
from tf_strategies.options import CommunicationOptions

__all__ = ["Rehearsing"]


class Rehearsing(Unconnected):
    """The only worker that is left of the whole cluster, for functions that are traced. Its collectives reach no other worker.

    Args:
        cluster: the whole cluster, whose functions this worker traces, and of whose data it reads its part.
        options: the options of communication.
    """

    def __init__(self, cluster: Cluster, options: CommunicationOptions) -> None:
        super().__init__(cluster)
        self._solo = SoloCommunicator(cluster.name_of(cluster.task), options)
        self.id = self._solo.id

    def next_instance(self, name: str, *, count: int = 1) -> int:
        """Does the same as `Communicator.next_instance`."""
        return self._solo.next_instance(name, count=count)

    @property
    def has_functions(self) -> bool:  # type: ignore[override]
        """Does the same as `Communicator.has_functions`."""
        return self._solo.has_functions

    def close(self, why: str = "") -> None:
        """Ends the collectives."""
        del why
        self._solo.close()
