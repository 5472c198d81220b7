"""The calls that a program makes on every worker, outside of replica functions."""

from __future__ import annotations

from typing import Collection, ContextManager

from tf_strategies.collective.calls.array_calls import ArrayCalls
from tf_strategies.collective.calls.object_calls import ObjectCalls
from tf_strategies.collective.calls.rendezvous import rendezvous_of
from tf_strategies.collective.calls.turns import Turn

__all__ = ["WorkerCalls"]


class WorkerCalls(ArrayCalls, ObjectCalls):
    """Offers collectives of NumPy arrays, numbers, eager tensors and objects, and turns.

    All workers must make the same calls in the same order, from one thread. Different calls are a ValueError on all workers.
    """

    def barrier(self) -> None:
        """Waits until every worker has called it.

        Raises:
            RuntimeError: it is called in a replica function, a tf.function or the block of `only_on_chief`.
            ValueError: another worker makes another call, or has given a value that cannot be sent.
            WorkerLostError: another worker was lost.
            tf.errors.DeadlineExceededError: a worker has not made the call within the timeout of the options.

        Example:
            >>> strategy = tfs.CollectiveAllReduceStrategy()
            >>> strategy.barrier()
        """
        self._prepare("barrier()", lambda: None)
        self._meet("barrier()")

    def only_on_chief(self) -> ContextManager[bool]:
        """Opens a block that the chief runs first, as for a download. The value is True on the chief alone.

        Every worker must open it. The other workers wait at the end of the block until the chief has left it, also if that takes
        longer than the timeout of the options. If the block of a worker fails, it is a RuntimeError with the same text on
        the others. The block cannot call other workers. It also raises the errors of `barrier`.

        Example:
            >>> strategy = tfs.CollectiveAllReduceStrategy()
            >>> with strategy.only_on_chief() as mine:
            ...     if mine:
            ...         print("downloading")
            downloading
        """
        return self._turn("only_on_chief()", [0])

    def once_per_host(self) -> ContextManager[bool]:
        """Opens a block that one worker of each host runs first. The value is True on that worker, whose `local_rank` is 0.

        It is `only_on_chief` for files on local disks. All workers wait until these workers have left the block.

        Example:
            >>> strategy = tfs.CollectiveAllReduceStrategy()
            >>> with strategy.once_per_host() as mine:
            ...     if mine:
            ...         print("downloading")
            downloading
        """
        hosts = list(self._group.hosts)
        return self._turn("once_per_host()", {hosts.index(host) for host in hosts})

    def _turn(self, call: str, owners: Collection[int]) -> Turn:
        return Turn(rendezvous_of(self._group), call, owners, self._group.timeout)
