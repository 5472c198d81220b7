"""Compares what members say about the same thing, on the coordinator."""

from __future__ import annotations

from typing import Any

# Entries that some member has not spoken to, and may never.
_MOST_OPEN = 1024


class Comparisons:
    """The first word on each key, until all members have spoken.

    Args:
        size: the number of members.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._open: dict[tuple[str, str], tuple[int, Any, set[int]]] = {}

    def add(self, topic: str, key: str, rank: int, payload: Any) -> tuple[int, Any] | None:
        """Takes a member's word; returns the first member's rank and word, or None if this is the first.

        A second word of the same member on one key is ignored.
        """
        entry = self._open.get((topic, key))
        if entry is None:
            if len(self._open) >= _MOST_OPEN:
                del self._open[next(iter(self._open))]
            self._open[topic, key] = (rank, payload, {rank})
            return None
        first_rank, first, spoken = entry
        if rank in spoken:
            return None
        spoken.add(rank)
        if len(spoken) == self._size:
            del self._open[topic, key]
        return first_rank, first
