"""One all-gather of small payloads, as the coordinator collects it."""

from __future__ import annotations

import time
from typing import Any, Iterator

from tf_strategies.control_plane.messages import MAX_MESSAGE_BYTES, Message, encode


class Gathering:
    """The payloads of one sequence number, by rank.

    Args:
        sequence: which exchange of the group's life this is.
        what: what is exchanged, from its first participant; all must name the same.
    """

    def __init__(self, sequence: int, first_rank: int, what: str) -> None:
        self.sequence = sequence
        self.what = what
        self.first_rank = first_rank
        self.started = time.monotonic()
        self.payloads: dict[int, Any] = {}

    def missing(self, size: int) -> list[int]:
        """Returns the ranks that have not taken part."""
        return [rank for rank in range(size) if rank not in self.payloads]

    def replies(self, size: int) -> Iterator[Message]:
        """Returns the messages that carry all payloads, by rank, each within the limit of a message."""
        room = MAX_MESSAGE_BYTES - 1024
        run: list[Any] = []
        first = used = 0
        for rank in range(size):
            length = len(encode({"type": "payload", "payload": self.payloads[rank]}))
            if run and used + length > room:
                yield self._reply(first, run)
                first, run, used = rank, [], 0
            run.append(self.payloads[rank])
            used += length
        yield self._reply(first, run)

    def _reply(self, first: int, run: list[Any]) -> Message:
        return {"type": "gathered", "sequence": self.sequence, "first": first, "payloads": run}
