"""Decides after which steps each fragment of the weights is averaged. Imports no TensorFlow."""

from __future__ import annotations

from typing import List

__all__ = ["Schedule"]


class Schedule:
    """Tells which fragments are due.

    Fragment p of F is due `(p + 1) * sync_every / F` steps after the start, rounded down, and every `sync_every` steps from then
    on. If steps come several at a time, a fragment is due after those that reach its number, and the next cycle of all fragments
    begins after those that end the last one.

    Args:
        sync_every: the number of steps between two averages of a fragment.
        fragments: the number of fragments.
    """

    def __init__(self, sync_every: int, fragments: int) -> None:
        self._ends = [(number + 1) * sync_every // fragments for number in range(fragments)]
        self.restart(0)

    def restart(self, steps: int) -> None:
        """Begins the first cycle after so many steps, as after an average of all weights."""
        self._start = steps
        self._next = 0

    def due(self, steps: int) -> List[int]:
        """Returns the numbers of the fragments that are due after so many steps, and have not been returned before."""
        first = self._next
        while self._next < len(self._ends) and steps - self._start >= self._ends[self._next]:
            self._next += 1
        found = list(range(first, self._next))
        if self._next == len(self._ends):
            self.restart(steps)
        return found
