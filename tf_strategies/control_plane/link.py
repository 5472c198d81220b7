"""A member's stream to the coordinator, whatever carries it."""

from __future__ import annotations

from typing import Any, Callable, Protocol

from tf_strategies.control_plane.messages import Message


class Link(Protocol):
    """An open stream; it calls OnMessage and OnClosed, which its opener gave it, on a thread of its own."""

    def send(self, message: Message) -> None:
        """Queues a message; never blocks or raises, also when the stream is broken."""

    def close(self) -> None:
        """Breaks the stream; bounded."""


OnMessage = Callable[[Any, Message], None]  # the link, a message
OnClosed = Callable[[Any, str], None]  # the link, the reason; at most once
Opener = Callable[[OnMessage, OnClosed], Link]
