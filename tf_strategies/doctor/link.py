"""One connection between two doctors: both prove that they know the secret, and then every message is sealed.

    connecting end  ->  magic, whether it has a secret, the opening of a handshake (tf_strategies/handshake.py)
    accepting end   ->  magic, whether it has a secret, challenge
    connecting end  ->  proof
    both            ->  messages: four bytes of length, the seal, JSON

Connections for messages announce segments that any link passes, so that a report arrives where larger packets vanish.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import json
import os
import socket
import struct
from typing import Iterator

from tf_strategies.doctor.facts.names import Place
from tf_strategies.handshake import (
    CHALLENGE_BYTES,
    NONCE_BYTES,
    PROOF_BYTES,
    SEAL_BYTES,
    Accepting,
    AuthenticationError,
    Connecting,
    Session,
)
from tf_strategies.secret import SECRET_FILE
from tf_strategies.types import JsonObject

__all__ = ["SMALL_SEGMENT", "Link", "LinkError", "accept", "connect", "exactly"]

SMALL_SEGMENT = 536  # bytes; every IPv4 link passes 576 with the headers
_MAGIC = b"TFSDOCT1"
_OPENING_BYTES = len(_MAGIC) + 1 + NONCE_BYTES
_ANSWER_BYTES = len(_MAGIC) + 1
_LENGTH = struct.Struct("!I")
_MOST_BYTES = 1 << 20
_CONNECT_SECONDS = 2.0
_HANDSHAKE_SECONDS = 4.0
_SEND_SECONDS = 5.0

_KINDS = {
    errno.ECONNREFUSED: "refused",
    errno.ETIMEDOUT: "silent",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
    errno.EACCES: "forbidden",
    errno.EPERM: "forbidden",
    errno.ECONNRESET: "closed",
    errno.EPIPE: "closed",
}


class LinkError(Exception):
    """Says how a connection failed.

    Attributes:
        kind: "refused"; "silent" (no answer to the attempt to connect); "unreachable" (a router or host says so); "forbidden"
            (this host or a router refuses to send); "closed"; "mute" (it connects, and then nothing comes); "stranger" (another
            program answers); "secret" (another secret, or none); "unresolved"; "other".
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind

    @classmethod
    def of(cls, error: OSError) -> LinkError:
        """Returns the failure that an error of the operating system means."""
        number = error.errno or 0
        return cls(_KINDS.get(number, "other"), (os.strerror(number) if number else str(error)).lower())


class Link:
    """A connection on which both ends have proved themselves.

    Attributes:
        socket: does not block.
        peer: the task of the other end; "" until it has introduced itself.
    """

    def __init__(self, opened: socket.socket, session: Session) -> None:
        self.socket, self._session = opened, session
        self.peer = ""
        self._sending = asyncio.Lock()

    async def send(self, message: JsonObject) -> None:
        """Sends a message.

        Raises:
            LinkError: the connection has ended, or takes nothing for some seconds.
        """
        async with self._sending:
            sealed = self._session.seal(json.dumps(message).encode())
            data = _LENGTH.pack(len(sealed)) + sealed
            with _as_failures():
                await asyncio.wait_for(
                    asyncio.get_running_loop().sock_sendall(self.socket, data), _SEND_SECONDS
                )

    async def receive(self, seconds: float | None = None) -> JsonObject:
        """Returns the next message.

        Args:
            seconds: to wait; None to wait until the connection ends.

        Raises:
            LinkError: there is none in time, the connection has ended, or the bytes are no message of the other end.
        """
        with _as_failures():
            return await asyncio.wait_for(self._receive(), seconds)

    async def _receive(self) -> JsonObject:
        (count,) = _LENGTH.unpack(await exactly(self.socket, _LENGTH.size))
        if not SEAL_BYTES < count <= _MOST_BYTES:
            raise LinkError("stranger", f"it sends a message of {count} bytes")
        try:
            message = json.loads(self._session.open(await exactly(self.socket, count)))
        except (ValueError, RecursionError):
            raise LinkError("stranger", "it sends a message that cannot be read") from None
        if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
            raise LinkError("stranger", "it sends a message that has no kind")
        return message

    def close(self) -> None:
        """Closes the connection."""
        self.socket.close()


async def connect(place: Place, secret: bytes, *, segment: int = 0) -> Link:
    """Returns a connection to the doctor at a place.

    Args:
        place: (family, socket address).
        secret: of the cluster; empty if there is none.
        segment: the largest segment to send and to accept, in bytes; 0 for what the link allows.

    Raises:
        LinkError: there is no doctor there, or it does not prove itself.
    """
    family, address = place
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if segment:
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment)
        loop = asyncio.get_running_loop()
        with _as_failures("silent", f"no answer within {_CONNECT_SECONDS:g} s"):
            await asyncio.wait_for(loop.sock_connect(opened, address), _CONNECT_SECONDS)
        with _as_failures():
            return await asyncio.wait_for(_introduce(opened, secret), _HANDSHAKE_SECONDS)
    except BaseException:
        opened.close()
        raise


async def accept(opened: socket.socket, secret: bytes) -> Link:
    """Returns the connection of a doctor that has connected.

    Raises:
        LinkError: it is no doctor, or does not prove itself.
    """
    with _as_failures():
        opened.setblocking(False)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return await asyncio.wait_for(_answer(opened, secret), _HANDSHAKE_SECONDS)


async def exactly(opened: socket.socket, count: int) -> bytes:
    """Returns the next `count` bytes.

    Raises:
        LinkError: the connection has ended before.
    """
    loop = asyncio.get_running_loop()
    parts, missing = [], count
    while missing:
        more = await loop.sock_recv(opened, min(missing, 1 << 16))
        if not more:
            raise LinkError("closed", "it closed the connection")
        parts.append(more)
        missing -= len(more)
    return b"".join(parts)


async def _introduce(opened: socket.socket, secret: bytes) -> Link:
    handshake = Connecting(_key(secret), _MAGIC + _flag(secret))
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(opened, handshake.opening)
    answer = await exactly(opened, _ANSWER_BYTES)
    if not answer.startswith(_MAGIC):
        raise LinkError("stranger", "another program answers there")
    _compare(answer[-1:], secret)
    try:
        proof, session = handshake.answer(await exactly(opened, CHALLENGE_BYTES))
    except AuthenticationError as error:
        raise LinkError("secret", str(error)) from None
    await loop.sock_sendall(opened, proof)
    return Link(opened, session)


async def _answer(opened: socket.socket, secret: bytes) -> Link:
    magic = await exactly(opened, len(_MAGIC))
    if magic != _MAGIC:
        raise LinkError("stranger", "another program has connected")
    opening = magic + await exactly(opened, _OPENING_BYTES - len(_MAGIC))
    handshake = Accepting(_key(secret), opening)
    await asyncio.get_running_loop().sock_sendall(opened, _MAGIC + _flag(secret) + handshake.challenge)
    _compare(opening[len(_MAGIC) : len(_MAGIC) + 1], secret)
    try:
        return Link(opened, handshake.check(await exactly(opened, PROOF_BYTES)))
    except AuthenticationError as error:
        raise LinkError("secret", str(error)) from None


def _compare(flag: bytes, secret: bytes) -> None:
    if flag != _flag(secret):
        text = (
            "it has a secret, and this task has none"
            if not secret
            else "this task has a secret, and it has none"
        )
        raise LinkError("secret", f"{text} ({SECRET_FILE})")


def _flag(secret: bytes) -> bytes:
    return b"\1" if secret else b"\0"


def _key(secret: bytes) -> bytes:
    return hmac.digest(secret, b"tf_strategies doctor", "sha256")


@contextlib.contextmanager
def _as_failures(kind: str = "mute", text: str = "it connects, and does not answer") -> Iterator[None]:
    """Turns errors of the operating system into failures, and the end of a wait into one of this kind."""
    try:
        yield
    except (asyncio.TimeoutError, TimeoutError) as error:
        if isinstance(error, OSError) and error.errno:
            raise LinkError.of(error) from None
        raise LinkError(kind, text) from None
    except OSError as error:
        raise LinkError.of(error) from None
