"""Connects the ranks of a group by TCP, each pair once, and makes sure that both ends belong to the group.

A rank listens on its address of TF_CONFIG alone. It connects to the lower ranks, and is connected to by the higher ones. Both
ends of a connection prove that they know the key of the group before anything else is read (tf_strategies/handshake.py); the
connecting end says its rank and the other's.

Nothing blocks: one loop serves all connections, and each wait has a deadline.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hmac
import os
import selectors
import socket
import struct
import time
from typing import Generator, Sequence

from tf_strategies.errors import BootstrapError
from tf_strategies.handshake import CHALLENGE_BYTES, NONCE_BYTES, PROOF_BYTES, Accepting, Connecting

__all__ = ["TcpMesh", "group_key"]

_HELLO = struct.Struct("!8sII")  # magic, from rank, to rank
_MAGIC = b"TFSTCP01"
_HANDSHAKE_SECONDS = 10.0  # for a connection that was opened; then it is closed
_RETRY_SECONDS = 0.2
_MOST_STRANGERS = 64  # connections that have not proved anything, beside those of the ranks
_BACKLOG = 128
_PORTS = "TF_STRATEGIES_PORTS"  # the environment variable

# Yields how many bytes it wants next, and is sent them. Returns the rank of the other end.
_Talk = Generator[int, bytes, int]


def group_key(secret: bytes, epoch: int) -> bytes:
    """Returns the key of the data connections of one group.

    Args:
        secret: of the cluster; empty where it has none.
        epoch: the number of the group, which no other has.
    """
    return hmac.digest(secret, b"tf_strategies data %d" % epoch, "sha256")


@dataclasses.dataclass
class _Connection:
    """A connection in the making.

    Attributes:
        talk: what is said; None until a connection that this rank opens is open.
        wanted: the bytes that `talk` waits for.
        to: the rank that this one connects to, or -1.
        until: time.monotonic() of the latest end of the handshake.
    """

    socket: socket.socket
    talk: _Talk | None
    to: int
    until: float
    wanted: int = 0
    heard: bytes = b""


class TcpMesh:
    """Listens for the connections of a group, and makes them.

    Args:
        host: of this task in TF_CONFIG.

    Attributes:
        port: where this rank listens, for the others.

    Raises:
        BootstrapError: this machine cannot listen on the address.
    """

    def __init__(self, host: str) -> None:
        try:
            self._listener = _listen(host, _ports(os.environ.get(_PORTS, "0-0")))
        except OSError as error:
            raise BootstrapError(f"cannot listen for data on {host}: {error.strerror or error}") from None
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]

    def close(self) -> None:
        """Stops listening."""
        self._listener.close()

    def connect(
        self,
        rank: int,
        addresses: Sequence[tuple[str, int] | None],
        names: Sequence[str],
        key: bytes,
        timeout: float,
    ) -> list[int]:
        """Returns a connected socket for each rank, by file descriptor, and -1 for this one. The caller owns them.

        Args:
            rank: this rank.
            addresses: host and port of each rank; None for a rank that needs no connection, and gets -1.
            names: of the ranks, for messages.
            key: of the group.
            timeout: seconds.

        Raises:
            BootstrapError: some rank could not be connected in time; names it, its address and the reason.
        """
        meeting = _Meeting(self._listener, rank, addresses, key)
        with contextlib.closing(meeting):
            missing = meeting.run(time.monotonic() + timeout)
            if missing:
                raise BootstrapError(_unreachable(names[rank], missing, meeting.addresses, names, timeout))
            return meeting.detach()


def _ports(text: str) -> range:
    """Returns the ports of a range such as "40000-40100".

    Raises:
        BootstrapError: it is no range of ports.
    """
    first, _, last = text.partition("-")
    if first.isdecimal() and last.isdecimal() and int(first) <= int(last) < 1 << 16:
        return range(int(first), int(last) + 1)
    raise BootstrapError(f'{_PORTS} must be a range of ports such as "40000-40100"; got {text!r}')


def _listen(host: str, ports: range) -> socket.socket:
    """Returns a socket that listens on the first of these ports that is free; on any for port 0."""
    family = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0][0]
    for port in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4])
            listener.listen(_BACKLOG)
            return listener
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE or port == ports[-1]:
                raise
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _unreachable(
    mine: str,
    missing: dict[int, str],
    addresses: dict[int, tuple[str, int]],
    names: Sequence[str],
    timeout: float,
) -> str:
    rank, reason = next(iter(missing.items()))
    host, port = addresses[rank]
    more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
    return (
        f"{mine} has no data connection with {names[rank]} (data port {host}:{port}){more} after {timeout:g} s: {reason}; let "
        "the firewall pass TCP between the hosts on all ports, or on those of TF_STRATEGIES_PORTS"
    )


class _Meeting:
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
            family, _, _, _, address = socket.getaddrinfo(*self.addresses[rank], type=socket.SOCK_STREAM)[0]
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
            talk = self._answer(opened)
            connection = _Connection(opened, talk, -1, time.monotonic() + _HANDSHAKE_SECONDS)
            self._open[opened] = connection
            self._selector.register(opened, selectors.EVENT_READ)
            self._talk(connection, talk, b"")

    def _go_on(self, connection: _Connection) -> None:
        try:
            talk = connection.talk
            if talk is None:
                code = connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                if code:
                    self._end(connection, os.strerror(code))
                    return
                self._selector.modify(connection.socket, selectors.EVENT_READ)
                connection.talk = talk = self._introduce(connection.socket, connection.to)
                self._talk(connection, talk, b"")
                return
            heard = connection.socket.recv(connection.wanted - len(connection.heard))
            if not heard:
                self._end(connection, "it closed the connection")
                return
            connection.heard += heard
            if len(connection.heard) == connection.wanted:
                self._talk(connection, talk, connection.heard)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(connection, f"{error.strerror or error}")

    def _talk(self, connection: _Connection, talk: _Talk, heard: bytes) -> None:
        """Lets the handshake go on; it ends with the rank of the other end, or with an error."""
        connection.heard = b""
        try:
            connection.wanted = talk.send(heard) if heard else next(talk)
        except StopIteration as ended:
            self._forget(connection)
            self._met[ended.value] = connection.socket
        except (ValueError, OSError) as error:
            self._end(connection, str(error))

    def _introduce(self, opened: socket.socket, to: int) -> _Talk:
        """Says who this is, and checks the proof of the other end before it gives its own."""
        connecting = Connecting(self._key, _HELLO.pack(_MAGIC, self._rank, to))
        _send(opened, connecting.opening)
        proof, _ = connecting.answer((yield CHALLENGE_BYTES))
        _send(opened, proof)
        return to

    def _answer(self, opened: socket.socket) -> _Talk:
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
