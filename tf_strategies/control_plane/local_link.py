"""The stream of rank 0 to the coordinator in its own process, without a network connection."""

from __future__ import annotations

import logging

from tf_strategies.control_plane.coordinator import Coordinator
from tf_strategies.control_plane.link import OnMessage
from tf_strategies.control_plane.messages import Message

_log = logging.getLogger("tf_strategies")


class LocalLink:
    """The member's end. The coordinator's end is a `_LocalConnection`."""

    refused = ""

    def __init__(self, coordinator: Coordinator, on_message: OnMessage) -> None:
        self._coordinator = coordinator
        self._connection = _LocalConnection(self, on_message)

    def send(self, message: Message) -> None:
        """Queues a message for the coordinator."""
        self._coordinator.post(self._connection, message)

    def close(self) -> None:
        """Does nothing, because the owner of the coordinator ends it."""


class _LocalConnection:
    """The coordinator's end. It passes messages to the member on the coordinator's thread."""

    peer = "this process"

    def __init__(self, link: LocalLink, on_message: OnMessage) -> None:
        self._link = link
        self._on_message = on_message

    def send(self, message: Message) -> None:
        """Passes a message to the member.

        An error of the member is logged, so that the other members still get their messages.
        """
        try:
            self._on_message(self._link, message)
        except Exception:
            _log.exception(
                "the member in the coordinator's process failed to handle a %r message", message["type"]
            )

    def end(self) -> None:
        """Does nothing, because there is no connection to end."""

    def handled(self) -> None:
        """Does nothing, because the messages of this process are not limited."""
