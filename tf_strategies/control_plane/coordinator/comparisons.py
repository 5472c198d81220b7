"""Compares the payloads that members send for the same key."""

from __future__ import annotations

from typing import Callable, Optional, Tuple

from tf_strategies.control_plane import messages
from tf_strategies.control_plane.coordinator.group_life import GroupLife
from tf_strategies.control_plane.messages import Failure, Message
from tf_strategies.errors import Code
from tf_strategies.types import Json

__all__ = ["Comparer", "Comparisons", "FirstPayloads"]

# The limit of keys for which some members have sent nothing yet. They may never do so.
_MOST_OPEN = 1024

# Is called with the key, two names and two payloads, in the order of the ranks. Returns None, or the reason why the group
# must end.
Comparer = Callable[[str, Tuple[str, str], Tuple[Json, Json]], Optional[str]]


class FirstPayloads:
    """Keeps the first payload of each key until all members have sent theirs.

    Args:
        size: the number of members.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._open: dict[tuple[str, str], tuple[int, Json, set[int]]] = {}

    def add(self, topic: str, key: str, rank: int, payload: Json) -> tuple[int, Json] | None:
        """Adds a member's payload.

        A second payload of the same member for the key is ignored.

        Args:
            topic: the topic.
            key: the key within the topic.
            rank: the member.
            payload: its payload.

        Returns:
            The rank and the payload of the member that was first, or None if there is nothing to compare.
        """
        entry = self._open.get((topic, key))
        if entry is None:
            if len(self._open) >= _MOST_OPEN:
                del self._open[next(iter(self._open))]
            self._open[topic, key] = (rank, payload, {rank})
            return None
        first_rank, first, seen = entry
        if rank in seen:
            return None
        seen.add(rank)
        if len(seen) == self._size:
            del self._open[topic, key]
        return first_rank, first


class Comparisons:
    """Compares each member's payload for a key with the first one.

    Args:
        life: the state of the group.

    Attributes:
        comparers: the functions that compare two payloads, by topic.
    """

    def __init__(self, life: GroupLife) -> None:
        self._life = life
        self._first_payloads = FirstPayloads(life.roster.size)
        self.comparers: dict[str, Comparer] = {}

    def on_compare(self, rank: int, message: Message) -> None:
        """Compares a member's payload with the first one, and fails the group if the comparer returns a reason."""
        topic, key = messages.text(message, "topic"), messages.text(message, "key")
        comparer = self.comparers.get(topic)
        if not self._life.running or comparer is None:
            return
        mine = message.get("payload")
        earlier = self._first_payloads.add(topic, key, rank, mine)
        if earlier is None:
            return
        (first_rank, first), (second_rank, second) = sorted([earlier, (rank, mine)], key=lambda each: each[0])
        names = self._life.roster.names
        try:
            cause = comparer(key, (names[first_rank], names[second_rank]), (first, second))
        except TypeError as error:
            raise ValueError(f"the payload of a compare message has a wrong type: {error}") from None
        if cause is not None:
            self._life.fail(Failure(Code.MISMATCH, cause))
