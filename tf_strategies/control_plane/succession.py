"""Says how a group follows another one, in elastic training."""

from __future__ import annotations

from typing import Mapping, NamedTuple

from tf_strategies.cluster import Cluster, Task
from tf_strategies.control_plane.agreement import terms_of

__all__ = ["FIRST", "Succession", "newcomer_terms"]


class Succession(NamedTuple):
    """Describes the place of a group among those of its cluster.

    Attributes:
        before: the number of the group before; 0 for the first group.
        joined: the tasks that are new in the group.
    """

    before: int = 0
    joined: frozenset[Task] = frozenset()

    @property
    def is_first(self) -> bool:
        """Whether no group was before."""
        return self.before == 0

    def added_to(self, options: Mapping[str, object]) -> dict[str, object]:
        """Returns the options on which the group agrees, so that tasks of different groups do not mix."""
        return {**options, "group before": self.before}


FIRST = Succession()


def newcomer_terms(cluster: Cluster, options: Mapping[str, object]) -> dict[str, object]:
    """Returns the terms of a newcomer: those of a first group, but for the workers, of which it may know another number."""
    return terms_of(cluster.without_workers(), FIRST.added_to(options), with_size=False)
