"""Calls between some of the workers."""

from __future__ import annotations

import contextlib
from typing import Iterable, List, Optional, Sequence, Tuple

from tf_strategies.collective.calls.calls import WorkerCalls
from tf_strategies.collective.calls.rendezvous import rendezvous_of
from tf_strategies.collective.worker_group import WorkersOfSubgroup

__all__ = ["Subgroup", "SubgroupCalls"]


class Subgroup(WorkerCalls):
    """Offers the calls of the strategy among some of its workers. `strategy.subgroup` makes it.

    In its calls a rank is a position in `ranks`, and so is `root`. Its first worker is the one that `only_on_chief` is for.

    Args:
        group: these workers.
        ranks: their ranks in the strategy.

    Attributes:
        ranks: their ranks in the strategy.
    """

    _group: WorkersOfSubgroup

    def __init__(self, group: WorkersOfSubgroup, ranks: Sequence[int]) -> None:
        self._group = group
        self.ranks: Tuple[int, ...] = tuple(ranks)

    @property
    def rank(self) -> int:
        """The position of this worker in `ranks`."""
        return self._group.rank

    @property
    def size(self) -> int:
        """The number of workers."""
        return self._group.size

    def close(self) -> None:
        """Closes the connections of the subgroup. Its workers must all call it; closing the strategy does so, too."""
        self._prepare("close()", lambda: None)
        self._group.end_failures()
        with contextlib.suppress(Exception):
            self._meet("close()")
        self._group.close()


class SubgroupCalls(WorkerCalls):
    """Offers the calls among all workers, and makes subgroups."""

    def subgroup(self, ranks: Sequence[int]) -> Optional[Subgroup]:
        """Returns an object with the calls of the strategy among some workers only.

        All workers of the strategy must call it, with the same ranks, because they connect the subgroup together. It also
        raises the errors of `barrier`.

        Args:
            ranks: the ranks of the workers.

        Returns:
            The subgroup, or None on a worker that is not in it. It has `ranks`, `rank`, `size`, `close` and the calls.

        Raises:
            BootstrapError: the workers could not connect.

        Example:
            >>> strategy = tfs.CollectiveAllReduceStrategy()
            >>> alone = strategy.subgroup([0])
            >>> alone.all_reduce(2.0), alone.size
            (2.0, 1)
        """
        call = "subgroup"
        chosen = self._prepare(call, lambda: self._checked_ranks(ranks))
        self._meet(f"{call}({chosen})")
        with rendezvous_of(self._group).sending(call):
            group = self._group.subgroup(chosen)
        return None if group is None else Subgroup(group, chosen)

    def _checked_ranks(self, ranks: Iterable[int]) -> List[int]:
        chosen = list(ranks)
        for rank in chosen:
            self._checked_root(rank)
        if not chosen or len(set(chosen)) < len(chosen):
            raise ValueError(f"a subgroup needs at least one rank, and each once; got {chosen}")
        return chosen
