"""Gathers small payloads from all members."""

from __future__ import annotations

import time
from typing import Iterator

from tf_strategies.control_plane import messages
from tf_strategies.control_plane.coordinator.group_life import GroupLife
from tf_strategies.control_plane.messages import MAX_MESSAGE_BYTES, Failure, Message, encode
from tf_strategies.errors import Code

__all__ = ["Exchanges", "Gathering"]


class Gathering:
    """Holds the payloads of one exchange, by rank.

    Args:
        sequence: the number of the exchange.
        first_rank: the first rank that took part.
        what: the name that this rank gave to the exchange. All ranks must give the same name.
    """

    def __init__(self, sequence: int, first_rank: int, what: str) -> None:
        self.sequence = sequence
        self.what = what
        self.first_rank = first_rank
        self.started = time.monotonic()
        self.payloads: dict[int, object] = {}

    def missing(self, size: int) -> list[int]:
        """Returns the ranks that have not taken part."""
        return [rank for rank in range(size) if rank not in self.payloads]

    def replies(self, size: int) -> Iterator[Message]:
        """Yields the messages that contain all payloads, by rank, each within the size limit of messages."""
        room = MAX_MESSAGE_BYTES - 1024
        run: list[object] = []
        first = used = 0
        for rank in range(size):
            length = len(encode({"type": "payload", "payload": self.payloads[rank]}))
            if run and used + length > room:
                yield self._reply(first, run)
                first, run, used = rank, [], 0
            run.append(self.payloads[rank])
            used += length
        yield self._reply(first, run)

    def _reply(self, first: int, run: list[object]) -> Message:
        return {"type": "gathered", "sequence": self.sequence, "first": first, "payloads": run}


class Exchanges:
    """Holds the exchanges in which some members have not taken part.

    Args:
        life: the state of the group.
        timeout: the limit for each exchange, in seconds.
    """

    def __init__(self, life: GroupLife, timeout: float) -> None:
        self._life, self._timeout = life, timeout
        self._open: dict[int, Gathering] = {}

    def on_exchange(self, rank: int, message: Message) -> None:
        """Adds a member's payload. If it is the last one, sends all payloads to all members."""
        if not self._life.running:
            return
        roster = self._life.roster
        sequence, what = messages.integer(message, "sequence"), messages.text(message, "what")
        gathering = self._open.setdefault(sequence, Gathering(sequence, rank, what))
        if what != gathering.what:
            first = f"{roster.names[gathering.first_rank]} exchanges {gathering.what!r}"
            second = f"{roster.names[rank]} {what!r}"
            self._life.fail(
                Failure(Code.MISMATCH, f"{first} and {second}; run the same script on every worker")
            )
            return
        gathering.payloads[rank] = message.get("payload")
        if not gathering.missing(roster.size):
            del self._open[sequence]
            for reply in gathering.replies(roster.size):
                roster.send_to_all(reply)

    def watch(self) -> None:
        """Fails the group if a member has left without taking part, or is late."""
        names, entries = self._life.roster.names, self._life.roster.entries
        for gathering in list(self._open.values()):
            missing = gathering.missing(len(names))
            left = [rank for rank in missing if entries[rank].gone]
            if left:
                cause = (
                    f"{names[left[0]]} left the group before it took part in {gathering.what!r}; see its log"
                )
                with_error = frozenset(
                    rank for rank in left if entries[rank].why or entries[rank].left is None
                )
                self._life.fail(Failure(Code.UNAVAILABLE, cause, with_error))
                return
            if time.monotonic() - gathering.started >= self._timeout:
                late = ", ".join(names[rank] for rank in missing)
                cause = f"{late} did not take part in {gathering.what!r} in {self._timeout:g} s; see its log"
                self._life.fail(Failure(Code.DEADLINE_EXCEEDED, cause, frozenset(missing)))
                return
