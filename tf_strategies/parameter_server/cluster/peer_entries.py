"""Reads the entries that other workers write to a server at about the same time as this worker."""

from __future__ import annotations

import time
from typing import Callable, Dict, Iterable, Optional, Set, TypeVar

__all__ = ["PeerEntries"]

_AWAITED_SECONDS = 5.0
_POLL_SECONDS = 0.02

Left = TypeVar("Left")


class PeerEntries:
    """Looks for the entries. If all workers write at about the same time, it waits up to 5 seconds for them.

    A worker that missed this limit may be dead. It is not waited for again until it has written an entry.

    Args:
        rank: this worker's number.
        size: the number of workers.
        wait: whether all workers reach the same step at about the same time.
    """

    def __init__(self, rank: int, size: int, *, wait: bool) -> None:
        self._ranks = set(range(size)) - {rank}
        self._seconds = _AWAITED_SECONDS if wait else 0.0
        self._missing: Set[int] = set()

    def find(
        self, look: Callable[[int], Optional[Left]], passed: Callable[[], Iterable[int]] = tuple
    ) -> Dict[int, Left]:
        """Returns the results of `look` for the other workers, by rank.

        Workers for which it returns None are left out.

        Args:
            look: returns the entry of the worker with a rank, or None.
            passed: returns the workers that have gone past this point. Such a worker will not write an entry
                any more.
        """
        found: Dict[int, Left] = {}
        deadline = time.monotonic() + self._seconds
        while True:
            gone_on = set(passed()) if self._seconds else set()
            for rank in self._ranks - set(found):
                left = look(rank)
                if left is not None:
                    found[rank] = left
            if self._ranks - set(found) <= self._missing | gone_on or time.monotonic() >= deadline:
                break
            time.sleep(_POLL_SECONDS)
        self._missing = self._ranks - set(found)
        return found
