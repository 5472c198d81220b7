"""Compares what members say about the same thing."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

from tf_strategies.control_plane import messages
from tf_strategies.control_plane.coordinator.group_life import GroupLife
from tf_strategies.control_plane.messages import Failure, Message
from tf_strategies.errors import Code

__all__ = ["Comparisons", "FirstWords", "Judge"]

# Keys on which some members have not spoken yet. They may never do so.
_MOST_OPEN = 1024

# Is called with the key, both names and both payloads in the order of the ranks. Returns why the group must end, or None.
Judge = Callable[[str, Tuple[str, str], Tuple[Any, Any]], Optional[str]]


class FirstWords:
    """Keeps the first word on each key until all members have spoken.

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


class Comparisons:
    """Has a judge compare each member's word with the first one.

    Attributes:
        judges: by topic.
    """

    def __init__(self, life: GroupLife) -> None:
        self._life = life
        self._first_words = FirstWords(life.roster.size)
        self.judges: dict[str, Judge] = {}

    def on_compare(self, rank: int, message: Message) -> None:
        """Takes a member's word, and fails the group if the judge finds a cause."""
        topic, key = messages.text(message, "topic"), messages.text(message, "key")
        judge = self.judges.get(topic)
        if not self._life.running or judge is None:
            return
        mine = message.get("payload")
        earlier = self._first_words.add(topic, key, rank, mine)
        if earlier is None:
            return
        (first_rank, first), (second_rank, second) = sorted([earlier, (rank, mine)], key=lambda each: each[0])
        names = self._life.roster.names
        try:
            cause = judge(key, (names[first_rank], names[second_rank]), (first, second))
        except TypeError as error:
            raise ValueError(f"a compare message has an unfit payload: {error}") from None
        if cause is not None:
            self._life.fail(Failure(Code.MISMATCH, cause))
