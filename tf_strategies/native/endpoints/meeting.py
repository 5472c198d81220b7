"""Runs the handshakes of one rank while the ranks of a group connect by TCP.

Both ends of a connection prove that they know the key of the group before anything else is read (tf_strategies/handshake.py).
The connecting end says its rank and that of the other end. Nothing blocks: one loop serves all connections, and each wait has a
deadline.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import selectors
import socket
import struct
import time
from typing import Generator, Sequence

from tf_strategies.handshake import CHALLENGE_BYTES, NONCE_BYTES, PROOF_BYTES, Accepting, Connecting
from tf_strategies.name_lookup import look_up

__all__ = ["Meeting"]

_HELLO = struct.Struct("!8sII")  # magic, from rank, to rank
_MAGIC = b"TFSTCP01"
_HANDSHAKE_SECONDS = 10.0  # from the opening of a connection; then it is closed
_RETRY_SECONDS = 0.2
_MOST_STRANGERS = 64  # connections that have not proved anything, beside those of the ranks

# A handshake. It yields the number of bytes that it needs next, is sent them, and returns the rank of the other end.
_Handshake = Generator[int, bytes, int]


@dataclasses.dataclass
class _Connection:
    """A connection whose handshake has not ended.

    Attributes:
        handshake: None until a connection that this rank opens is open.
        to: the rank that this one connects to; -1 if the other end has connected.
        until: time.monotonic() of the latest end of the handshake.
        wanted: the number of bytes that the handshake waits for.
        heard: those of them that have come.
    """

    socket: socket.socket
    handshake: _Handshake | None
    to: int
    until: float
    wanted: int = 0
    heard: bytes = b""


class Meeting:
    """Runs the handshakes of one rank.

    Attributes:
        addresses: of the other ranks that it meets.
    """

    def __init__(
        self, listener: socket.socket, rank: int, addresses: Sequence[tuple[str, int] | None], key: bytes
    ) -> None:
        self._listener, self._rank, self._size, self._key = listener, rank, len(addresses), key
        self.addresses = {each: at for each, at in enumerate(addresses) if at is not None and each != rank}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._open: dict[socket.socket, _Connection] = {}
        self._met: dict[int, socket.socket] = {}
        self._reasons: dict[int, str] = {}
        # time.monotonic(), by rank that is not being connected to
        self._next_attempt = dict.fromkeys((each for each in self.addresses if each < rank), 0.0)

    def run(self, until: float) -> dict[int, str]:
        """Returns the ranks that are missing at the deadline, with reasons; none if all are connected."""
        while len(self._met) < len(self.addresses) and time.monotonic() < until:
            now = time.monotonic()
            for rank in [each for each, at in self._next_attempt.items() if at <= now]:
                self._begin(rank, now)
            for key, _ in self._selector.select(min(_RETRY_SECONDS, max(0.0, until - now))):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._go_on(self._open[key.fileobj])  # type: ignore[index]
            for connection in [each for each in self._open.values() if each.until < time.monotonic()]:
                self._end(connection, "it did not answer")
        for connection in self._open.values():
            if connection.to >= 0:
                self._reasons.setdefault(connection.to, "no answer came")
        others = (each for each in self.addresses if each not in self._met)
        return {each: self._reasons.get(each, "it has not connected") for each in others}

    def detach(self) -> list[int]:
        """Returns the connections by rank, as file descriptors that the caller owns."""
        met, self._met = self._met, {}
        return [met[each].detach() if each in met else -1 for each in range(self._size)]

    def close(self) -> None:
        """Closes all connections that were not handed over."""
        for each in [*self._open, *self._met.values()]:
            each.close()
        self._selector.close()

    def _begin(self, rank: int, now: float) -> None:
        """Starts to connect to a rank."""
        del self._next_attempt[rank]
        try:
            family, _, _, _, address = look_up(*self.addresses[rank])[0]
            opened = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._retry(rank, f"{error.strerror or error}")
            return
        opened.setblocking(False)
        connection = _Connection(opened, None, rank, now + _HANDSHAKE_SECONDS)
        self._open[opened] = connection
        self._selector.register(opened, selectors.EVENT_WRITE)
        code = opened.connect_ex(address)
        if code not in (0, errno.EINPROGRESS):
            self._end(connection, os.strerror(code))

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the peer has gone again
            opened, _ = self._listener.accept()
            strangers = sum(each.to < 0 for each in self._open.values())
            if strangers >= _MOST_STRANGERS + len(self.addresses):
                opened.close()
                return
            opened.setblocking(False)
            handshake = self._answer(opened)
            connection = _Connection(opened, handshake, -1, time.monotonic() + _HANDSHAKE_SECONDS)
            self._open[opened] = connection
            self._selector.register(opened, selectors.EVENT_READ)
            self._advance(connection, handshake, b"")

    def _go_on(self, connection: _Connection) -> None:
        try:
            handshake = connection.handshake
            if handshake is None:
                code = connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    self._end(connection, os.strerror(code))
                    return
                self._selector.modify(connection.socket, selectors.EVENT_READ)
                connection.handshake = handshake = self._introduce(connection.socket, connection.to)
                self._advance(connection, handshake, b"")
                return
            heard = connection.socket.recv(connection.wanted - len(connection.heard))
            if not heard:
                self._end(connection, "it closed the connection")
                return
            connection.heard += heard
            if len(connection.heard) == connection.wanted:
                self._advance(connection, handshake, connection.heard)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(connection, f"{error.strerror or error}")

    def _advance(self, connection: _Connection, handshake: _Handshake, heard: bytes) -> None:
        """Gives the handshake the bytes that it has waited for. Keeps or closes the connection if the handshake ends."""
        connection.heard = b""
        try:
            connection.wanted = handshake.send(heard) if heard else next(handshake)
        except StopIteration as ended:
            self._forget(connection)
            self._met[ended.value] = connection.socket
        except (ValueError, OSError) as error:
            self._end(connection, str(error))

    def _introduce(self, opened: socket.socket, to: int) -> _Handshake:
        """Says who this is, and checks the proof of the other end before it gives its own."""
        connecting = Connecting(self._key, _HELLO.pack(_MAGIC, self._rank, to))
        _send(opened, connecting.opening)
        proof, _ = connecting.answer((yield CHALLENGE_BYTES))
        _send(opened, proof)
        return to

    def _answer(self, opened: socket.socket) -> _Handshake:
        """Proves who this is to a rank that has connected, and checks its proof."""
        opening = yield _HELLO.size + NONCE_BYTES
        magic, rank, to = _HELLO.unpack_from(opening)
        if magic != _MAGIC or to != self._rank or rank < self._rank or rank not in self.addresses:
            raise ValueError("it is no rank that this one waits for")
        accepting = Accepting(self._key, opening)
        _send(opened, accepting.challenge)
        accepting.check((yield PROOF_BYTES))
        if rank in self._met:
            raise ValueError("it is connected already")
        return int(rank)

    def _forget(self, connection: _Connection) -> None:
        self._selector.unregister(connection.socket)
        del self._open[connection.socket]

    def _end(self, connection: _Connection, reason: str) -> None:
        """Closes a connection; one that this rank has opened is tried again."""
        self._forget(connection)
        connection.socket.close()
        if connection.to >= 0:
            self._retry(connection.to, reason)

    def _retry(self, rank: int, reason: str) -> None:
        self._reasons[rank] = reason
        self._next_attempt[rank] = time.monotonic() + _RETRY_SECONDS


def _send(opened: socket.socket, data: bytes) -> None:
    """Sends some bytes over a new connection, whose buffer has room for all."""
    if opened.send(data) != len(data):
        raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
