"""Takes part in the exchanges of a group, in which every member gathers small objects from all."""

from __future__ import annotations

import threading
from typing import Callable

from tf_strategies.control_plane.messages import Failure, Message
from tf_strategies.errors import BootstrapError
from tf_strategies.types import JsonObject

__all__ = ["EXTRA_SECONDS", "Exchanging"]

EXTRA_SECONDS = 5.0  # the coordinator's error comes first, because it names the missing members


class Exchanging:
    """Handles the exchanges of one member, one after another.

    Args:
        changed: the condition whose lock guards the state. It is notified when the group fails.
        send: queues a message for rank 0.
        failure: returns the failure of the group, or None.
        broken: returns True if no answer can arrive any more.
        rank: this member's rank.
        names: the names of the members by rank.
        timeout: the limit of an exchange, in seconds.
    """

    def __init__(
        self,
        changed: threading.Condition,
        send: Callable[[Message], None],
        failure: Callable[[], Failure | None],
        broken: Callable[[], bool],
        *,
        rank: int,
        names: tuple[str, ...],
        timeout: float,
    ) -> None:
        self._changed, self._send, self._failure, self._broken = changed, send, failure, broken
        self._rank, self._names, self._timeout = rank, names, timeout
        self._gathered: dict[int, dict[int, JsonObject]] = {}
        self._sequence = 0

    def exchange(self, payload: JsonObject, what: str) -> list[JsonObject]:
        """Gathers a small JSON object from every rank; see `ControlPlane.exchange`.

        Raises:
            BootstrapError: the group has failed, or the exchange was not complete within the timeout.
        """
        size = len(self._names)
        with self._changed:
            sequence = self._sequence
            self._sequence += 1
            self._gathered[sequence] = {}
            self._send({"type": "exchange", "sequence": sequence, "what": what, "payload": payload})
            self._changed.wait_for(
                lambda: len(self._gathered[sequence]) == size or self._broken(), self._timeout + EXTRA_SECONDS
            )
            payloads = self._gathered.pop(sequence)
            failure = self._failure()
        if len(payloads) == size:
            return [payloads[rank] for rank in range(size)]
        if failure is not None:
            raise BootstrapError(failure.message)
        raise BootstrapError(
            f"{self._names[self._rank]}: {what!r} was not complete within {self._timeout:g} s, and "
            f"{self._names[0]} has left or does not answer; see its log"
        )

    def on_gathered(self, message: Message) -> None:
        """Stores the payloads of a message. The caller holds the lock and notifies the condition."""
        if message["sequence"] in self._gathered:
            for offset, payload in enumerate(message["payloads"]):
                self._gathered[message["sequence"]][message["first"] + offset] = payload
