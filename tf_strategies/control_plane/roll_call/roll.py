"""Decides who forms the next group, from what one survivor has heard. No sockets, no clock.

The survivor with the lowest rank leads: it decides. It waits for all ranks that are not known to be lost, but not longer than
the patience. The next group needs more than half of the ranks of the last one, or half of them with rank 0. Two groups that
go on after the same fault would share a rank or would both have rank 0, and a process is in one group at a time: so there is one
at most.

With an arbiter, half of a group goes on if it has the arbiter's vote, with or without rank 0. Any two halves of a group that have
a vote share a rank. Half of a group that has perhaps formed does not go on then. If that group has formed, its other half can
have a vote.

Ranks that leave in good order do not count: the rule holds for those that stay, and the lowest of them takes the place of rank
0. A leaver answers no call any more before the others hear of it. So a rank that has not heard of it, and counts all ranks of the
last group, finds a majority only among those that stay, and two groups would share a rank as before.

Newcomers, which join the next group, have the numbers after the ranks. They do not lead, and do not count for that rule.

A survivor that waits for a group to be complete, and loses its rank 0 then, cannot know whether the others of that group train
already. So it can only go on with enough of the ranks of that group, too; see Lotem, Keidar & Dolev 1997, "Dynamic voting for
consistent primary components". tests/support/successions.py has every order of events.
"""

from __future__ import annotations

import dataclasses
from typing import Collection, Iterable, Sequence

__all__ = ["Attempt", "Roll"]

Attempt = tuple[int, ...]
"""The ranks of the last group and newcomers that form a group, in the order of their ranks in it."""


@dataclasses.dataclass
class Roll:
    """Holds what a survivor knows of the others.

    Args:
        rank: this survivor, or the number of this newcomer.
        size: the number of ranks of the last group.
        lost: the ranks that are known to be lost. They do not take part in the next group.
        min_workers: the fewest workers of the next group.
        newcomers: how many join.
        leavers: the ranks that leave in good order.
        perhaps_formed: the groups that this survivor has tried to form, and that may have formed without it.
        has_arbiter: whether an arbiter decides between halves.

    Attributes:
        below: the survivors of a lower rank that have answered.
        above: those of a higher rank that have come.
    """

    rank: int
    size: int
    lost: frozenset[int]
    min_workers: int
    newcomers: int = 0
    leavers: frozenset[int] = frozenset()
    perhaps_formed: frozenset[Attempt] = frozenset()
    has_arbiter: bool = False
    below: set[int] = dataclasses.field(default_factory=set)
    above: set[int] = dataclasses.field(default_factory=set)
    _attempts: dict[int, frozenset[Attempt]] = dataclasses.field(default_factory=dict)

    def note_arrival(self, rank: int, perhaps_formed: Iterable[Attempt]) -> None:
        """Notes that a rank or newcomer above this one has come, and the groups that may have formed without it.

        It may have come before, and knew of fewer groups then.
        """
        self.above.add(rank)
        self._attempts[rank] = self._attempts.get(rank, frozenset()).union(perhaps_formed)

    def candidates(self) -> list[int]:
        """Returns the ranks below this one that may lead."""
        return [each for each in range(min(self.rank, self.size)) if each not in self._gone]

    def may_come(self, rank: int) -> bool:
        """Returns True for a rank or newcomer above this one that may be in the next group."""
        return self.rank < rank < self.size + self.newcomers and rank not in self._gone

    def leads(self, patience_is_over: bool) -> bool:
        """Returns True if this survivor decides: no rank below it has answered, and none can any more."""
        if self.rank >= self.size:
            return False
        return not self.below and (patience_is_over or not self.candidates())

    def members(self, patience_is_over: bool) -> tuple[int, ...] | None:
        """Returns the ranks and newcomers of the next group if this survivor leads and knows enough, otherwise None."""
        if not self.leads(patience_is_over):
            return None
        present = {self.rank, *self.above}
        awaited = set(range(self.size + self.newcomers)) - self._gone - present
        return None if awaited and not patience_is_over else tuple(sorted(present))

    def half(self, members: Iterable[int]) -> frozenset[int]:
        """Returns the ranks for which these ranks and newcomers need the vote of an arbiter, or none."""
        going_on = frozenset(members).intersection(self._staying)
        return going_on if self.has_arbiter and 2 * len(going_on) == len(self._staying) else frozenset()

    def objection(self, members: Iterable[int]) -> str:
        """Returns why these ranks and newcomers cannot go on, or "" if they can, perhaps with the vote of the arbiter."""
        all_members = set(members)
        staying = self._staying
        going_on = all_members.intersection(staying)
        if len(all_members) < self.min_workers:
            return (
                f"only {len(all_members)} of {self.size} workers are left, and min_workers is {self.min_workers}; restart all "
                "workers"
            )
        if not self.half(members) and not _is_enough(going_on, staying):
            return (
                f"only {len(going_on)} of {len(staying)} workers found one another. That is no majority, so the others may be "
                "training on; see their logs, then restart all workers"
            )
        heard = (self._attempts.get(each, frozenset()) for each in all_members)
        for attempt in self.perhaps_formed.union(*heard):
            again = all_members.intersection(attempt)
            if not self._is_enough_of(attempt, again):
                return (
                    f"only {len(again)} of {len(attempt)} workers found one another again after they had begun to form a group. "
                    "That is no majority, so the others may be training on; see their logs, then restart all workers"
                )
        return ""

    def _is_enough_of(self, attempt: Attempt, again: Collection[int]) -> bool:
        """Returns True if a group that has perhaps formed cannot train without these of its members."""
        return 2 * len(again) > len(attempt) or (not self.has_arbiter and _is_enough(again, attempt))

    @property
    def _staying(self) -> list[int]:
        return [each for each in range(self.size) if each not in self.leavers]

    @property
    def _gone(self) -> frozenset[int]:
        return self.lost | self.leavers


def _is_enough(some: Collection[int], group: Sequence[int]) -> bool:
    """Returns True for more than half of a group, and for half of it with its first rank."""
    return 2 * len(some) > len(group) or (2 * len(some) == len(group) and group[0] in some)
