"""Runs an arbiter at an address."""

from __future__ import annotations

import logging
import threading

from tf_strategies.arbiter.votes import Vote, Votes
from tf_strategies.control_plane import messages
from tf_strategies.control_plane.link import Connection, refuse
from tf_strategies.control_plane.messages import Message
from tf_strategies.control_plane.server import ControlServer
from tf_strategies.tls import TlsFiles

__all__ = ["serving"]

_ASKING_AT_ONCE = 64

_log = logging.getLogger("tf_strategies")


def serving(address: str, votes: Votes, secret: bytes, tls: TlsFiles | None) -> ControlServer:
    """Starts an arbiter, which serves until `stop` of what is returned.

    Args:
        address: "host:port", of this machine.
        votes: those that it has given.
        secret: of the jobs; b"" if they have none.
        tls: its certificate, or None.

    Raises:
        BootstrapError: the address cannot be listened on.
    """
    name = f"the arbiter at {address}"
    remedy = "end the process that uses the port, or give the arbiter another address"
    return ControlServer(name, address, _ASKING_AT_ONCE, secret, _Answers(votes).answer, tls, remedy=remedy)


class _Answers:
    def __init__(self, votes: Votes) -> None:
        self._votes = votes
        self._lock = threading.Lock()  # guards the votes

    def answer(self, stream: Connection, message: Message | None) -> None:
        """Answers a message of a stream. Is called on the thread of the stream.

        Raises:
            ValueError: it is no message for an arbiter.
        """
        if message is None:
            return
        stream.handled()
        if message["type"] == "ready":
            stream.send({"type": "here"})
            stream.end()
            return
        if message["type"] != "vote":
            raise ValueError(f"an arbiter does not take a {message['type']} message")
        vote = Vote(
            messages.integer(message, "group"),
            messages.ranks(message, "ranks"),
            messages.texts(message, "names"),
        )
        try:
            with self._lock:
                objection = self._votes.objection(vote)
        except OSError as error:
            objection = f"it cannot keep the vote: {error}"
        if objection:
            _log.warning("%s may not train on: %s", vote, objection)
            refuse(stream, objection)
            return
        _log.info("%s may train on", vote)
        stream.send({"type": "granted"})
        stream.end()
