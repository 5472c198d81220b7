"""The stream between a member and the coordinator, whatever carries it: both ends."""

from __future__ import annotations

from typing import Any, Callable, Protocol

from tf_strategies.control_plane.messages import Message


class Link(Protocol):
    """An open stream; it calls OnMessage and OnClosed, which its opener gave it, on a thread of its own.

    Attributes:
        refused: the environment variable for which it was closed, because the two ends disagree about the secret or TLS; "" for
            another reason.
    """

    refused: str

    def send(self, message: Message) -> None:
        """Queues a message; never blocks or raises, also when the stream is broken."""

    def close(self) -> None:
        """Breaks the stream; bounded."""


class Connection(Protocol):
    """One member's stream, as the coordinator sees it."""

    peer: str  # where it comes from, for messages

    def send(self, message: Message) -> None:
        """Queues a message; never blocks or raises, also when the stream is broken."""

    def end(self) -> None:
        """Ends the stream once what is queued has gone out."""

    def handled(self) -> None:
        """Tells the stream that one of its messages has been handled, so that it may bring another."""


OnMessage = Callable[[Any, Message], None]  # the link, a message
OnClosed = Callable[[Any, str], None]  # the link, the reason; at most once
Opener = Callable[[OnMessage, OnClosed], Link]
