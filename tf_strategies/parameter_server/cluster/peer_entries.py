"""Reads what the other workers write to a server at about the same time as this one."""

from __future__ import annotations

import time
from typing import Callable, Dict, Iterable, Optional, Set, TypeVar

__all__ = ["PeerEntries"]

_AWAITED_SECONDS = 5.0
_POLL_SECONDS = 0.02

Left = TypeVar("Left")


class PeerEntries:
    """Looks for it; where all are to leave it at about the same time, for up to 5 seconds.

    One that had not come by then is not waited for, until it has come again: it may be dead.

    Args:
        rank: this worker's number.
        size: how many workers there are.
        wait: whether all are at the same step at about the same time.
    """

    def __init__(self, rank: int, size: int, *, wait: bool) -> None:
        self._ranks = set(range(size)) - {rank}
        self._seconds = _AWAITED_SECONDS if wait else 0.0
        self._missing: Set[int] = set()

    def find(
        self, look: Callable[[int], Optional[Left]], passed: Callable[[], Iterable[int]] = tuple
    ) -> Dict[int, Left]:
        """Returns what `look` finds of each other worker, by rank; those of whom it finds None are left out.

        Args:
            look: for what the worker of a rank has left.
            passed: who has gone on; if such a worker has left nothing by then, it will not.
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
