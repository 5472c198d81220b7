"""The interfaces of the two ends of the stream between a member and the coordinator."""

from __future__ import annotations

from typing import Callable, Protocol

from tf_strategies.control_plane.messages import Message


class Link(Protocol):
    """The member's end of an open stream.

    It calls the functions OnMessage and OnClosed of its opener on its own thread.

    Attributes:
        refused: the environment variable to correct, if the stream was closed because the two ends disagree about the secret or
            TLS; "" otherwise.
    """

    refused: str

    def send(self, message: Message) -> None:
        """Queues a message. It never blocks or raises, even if the stream is broken."""

    def close(self) -> None:
        """Closes the stream. It returns within a limited time."""


class Connection(Protocol):
    """The coordinator's end of a member's stream.

    Attributes:
        peer: the origin of the stream, for messages.
    """

    peer: str

    def send(self, message: Message) -> None:
        """Queues a message. It never blocks or raises, even if the stream is broken."""

    def end(self) -> None:
        """Ends the stream after all queued messages have been sent."""

    def handled(self) -> None:
        """Tells the stream that one of its messages has been handled, so that it may deliver another."""


OnMessage = Callable[[Link, Message], None]
OnClosed = Callable[[Link, str], None]  # with the reason; is called at most once
Opener = Callable[[OnMessage, OnClosed], Link]


def refuse(connection: Connection, reason: str, retry: bool = False, **why: bool) -> None:
    """Sends the reason for a refusal, and ends the connection.

    Args:
        connection: the connection of a member or of an unknown process.
        reason: the reason, in one line.
        retry: whether the process may try again.
        why: `later=True` if the group takes it once it trains, `full=True` if there is no room for it now.
    """
    connection.send({"type": "refused", "message": reason, "retry": retry, **why})
    connection.end()
