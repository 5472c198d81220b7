"""Rank 0's own stream to the coordinator in its process: queues instead of a connection."""

from __future__ import annotations

import logging

from tf_strategies.control_plane.coordinator import Coordinator
from tf_strategies.control_plane.link import OnMessage
from tf_strategies.control_plane.messages import Message

_log = logging.getLogger("tf_strategies")


class LocalLink:
    """The member's end; the coordinator's end is a `_LocalConnection`."""

    refused = ""

    def __init__(self, coordinator: Coordinator, on_message: OnMessage) -> None:
        self._coordinator = coordinator
        self._connection = _LocalConnection(self, on_message)

    def send(self, message: Message) -> None:
        """Queues a message for the coordinator."""
        self._coordinator.post(self._connection, message)

    def close(self) -> None:
        """Does nothing: the owner of the coordinator ends it."""


class _LocalConnection:
    """The coordinator's end: hands messages to the member on the coordinator's thread."""

    peer = "this process"

    def __init__(self, link: LocalLink, on_message: OnMessage) -> None:
        self._link = link
        self._on_message = on_message

    def send(self, message: Message) -> None:
        """Hands over a message; an error of this member is logged, so that the others still get theirs."""
        try:
            self._on_message(self._link, message)
        except Exception:
            _log.exception("the member in the coordinator's process could not take %r", message["type"])

    def end(self) -> None:
        """Does nothing: no stream needs ending."""

    def handled(self) -> None:
        """Does nothing: this process does not flood itself."""
