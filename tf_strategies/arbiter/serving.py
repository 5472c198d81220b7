"""Runs an arbiter at an address."""

from __future__ import annotations

import threading
from typing import Callable

from tf_strategies.arbiter.votes import Vote, Votes
from tf_strategies.control_plane import messages
from tf_strategies.control_plane.link import Connection, refuse
from tf_strategies.control_plane.messages import Message
from tf_strategies.control_plane.server import ControlServer
from tf_strategies.options import MOST_WORKERS
from tf_strategies.tls import TlsFiles

__all__ = ["ArbiterServer"]

_ASKING_AT_ONCE = 1024
_REMEDY = "end the process that uses the port, or give the arbiter an address of this machine"


class ArbiterServer:
    """Serves from when it is made until `stop`.

    Args:
        address: "host:port", of this machine.
        votes: those that it has given.
        secret: of the jobs; b"" if they have none.
        tls: its certificate, or None.
        tell: is called with a line of text for each decision.

    Raises:
        BootstrapError: the address cannot be listened on.
    """

    def __init__(
        self, address: str, votes: Votes, secret: bytes, tls: TlsFiles | None, tell: Callable[[str], None]
    ) -> None:
        self._votes, self._tell = votes, tell
        self._lock = threading.Lock()  # guards the votes
        self._server = ControlServer(
            f"the arbiter at {address}", address, _ASKING_AT_ONCE, secret, self._answer, tls, remedy=_REMEDY
        )

    def stop(self) -> None:
        """Ends it, and closes the file of the votes."""
        self._server.stop()
        with self._lock:
            self._votes.close()

    def _answer(self, stream: Connection, message: Message | None) -> None:
        """Answers a message, on the thread of its stream. Raises ValueError if it is no message for an arbiter."""
        if message is None:
            return
        stream.handled()
        if message["type"] == "ready":
            stream.send({"type": "here"})
            stream.end()
            return
        vote = _vote_in(message)
        objection = self._objection(vote)
        self._tell(f"{vote} may not train on: {objection}" if objection else f"{vote} may train on")
        if objection:
            refuse(stream, objection)
            return
        stream.send({"type": "granted"})
        stream.end()

    def _objection(self, vote: Vote) -> str:
        try:
            with self._lock:
                return self._votes.objection(vote)
        except (OSError, ValueError) as error:  # ValueError: the file is closed
            return f"it cannot keep the vote ({error}); see its log and its disk, then restart all workers"


def _vote_in(message: Message) -> Vote:
    """Returns the vote that a message asks for. Raises ValueError if it asks for none."""
    if message["type"] != "vote":
        raise ValueError(f"an arbiter does not take a {message['type']} message")
    group, ranks = messages.integer(message, "group"), messages.ranks(message, "ranks")
    names = messages.texts(message, "names")
    if not 1 <= len(ranks) <= MOST_WORKERS or len(names) > len(ranks):
        raise ValueError(f"a vote must be for 1 to {MOST_WORKERS} ranks, and have no more names than ranks")
    return Vote(group, ranks, names)
