"""Opens and accepts connections between gateways: greets, and then starts TLS if the tasks use it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import AsyncIterator, NamedTuple

from tf_strategies.addresses import split_address
from tf_strategies.gateway.greeting import (
    ANSWER_BYTES,
    CHALLENGE_BYTES,
    MAGIC,
    OPENING_BYTES,
    PROOF_BYTES,
    READY,
    TICKET_BYTES,
    Caller,
    Purpose,
    Receiver,
    Security,
)
from tf_strategies.tls import CLUSTER_NAME, client_context, server_context

__all__ = [
    "CHUNK_BYTES",
    "GREETING_SECONDS",
    "Stream",
    "TlsError",
    "accept_data",
    "accept_stream",
    "answer",
    "fetch_ticket",
    "open_data",
    "open_stream",
    "relay",
]

GREETING_SECONDS = 10.0
_LOSS_SECONDS = 60
_CLOSING_SECONDS = 10.0
CHUNK_BYTES = 256 << 10


class TlsError(ValueError):
    """Says that a connection was accepted, and that TLS failed on it."""


class Stream(NamedTuple):
    """A connection on which both ends have proved themselves."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


async def open_stream(address: str, security: Security, purpose: Purpose) -> Stream:
    """Returns a connection to the task at an address.

    Args:
        address: "host:port" of TF_CONFIG.
        security: of this task.
        purpose: TENSORFLOW or TICKET.

    Raises:
        OSError: there is no connection, it ended, or the other end was silent.
        ValueError: the other end did not prove itself. The message says why.
    """
    async with _greeted(address, security, purpose) as opened:
        encryption = None if security.tls is None else client_context(security.tls)
        reader, writer = await asyncio.open_connection(
            sock=opened.dup(),
            limit=CHUNK_BYTES,
            ssl=encryption,
            server_hostname=None if encryption is None else CLUSTER_NAME,
        )
        try:
            if await reader.read(1) != READY:
                raise ConnectionError("it closed the connection")
        except BaseException:
            writer.close()
            raise
    return Stream(reader, writer)


async def fetch_ticket(address: str, security: Security) -> bytes:
    """Returns a ticket for one connection for tensors. The arguments and errors are those of `open_stream`."""
    stream = await open_stream(address, security, Purpose.TICKET)
    try:
        return await asyncio.wait_for(stream.reader.readexactly(TICKET_BYTES), GREETING_SECONDS)
    except (asyncio.IncompleteReadError, asyncio.TimeoutError):
        raise ConnectionError("it closed the connection") from None
    finally:
        stream.writer.close()


async def open_data(address: str, security: Security, ticket: bytes) -> socket.socket:
    """Returns a connection for tensors. Its TLS has not started. The arguments and errors are those of `open_stream`.

    Args:
        ticket: from the same task. It also identifies the connection there.
    """
    loop = asyncio.get_running_loop()
    async with _greeted(address, security, Purpose.DATA) as opened:
        await loop.sock_sendall(opened, ticket)
        await _exactly(opened, len(READY))
        return opened.dup()


@contextlib.asynccontextmanager
async def _greeted(address: str, security: Security, purpose: Purpose) -> AsyncIterator[socket.socket]:
    """Opens a connection and greets. Closes it at the end of the block, which has the same deadline."""
    loop = asyncio.get_running_loop()
    waiting = asyncio.current_task()
    silent = False

    def give_up() -> None:
        nonlocal silent
        silent = True
        if waiting is not None:
            waiting.cancel()

    deadline = loop.call_later(GREETING_SECONDS, give_up)
    try:
        with await _connected(*split_address(address)) as opened:
            caller = Caller(security, purpose)
            await loop.sock_sendall(opened, caller.opening)
            caller.check(await _exactly(opened, ANSWER_BYTES))
            await loop.sock_sendall(opened, caller.proof(await _exactly(opened, CHALLENGE_BYTES)))
            yield opened
    except asyncio.CancelledError:
        if not silent:
            raise
        raise ConnectionError(f"it did not answer within {GREETING_SECONDS:g} s") from None
    except ssl.SSLCertVerificationError as error:
        raise ValueError(f"its certificate is refused: {error.verify_message.rstrip('.')}") from None
    except ssl.SSLError as error:
        raise ValueError(f"TLS fails, as with a certificate of another authority: {_words(error)}") from None
    finally:
        deadline.cancel()


async def _connected(host: str, port: int) -> socket.socket:
    """Returns a connection to the first address of a host that accepts one."""
    loop = asyncio.get_running_loop()
    error: OSError | None = None
    for family, kind, protocol, _, place in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setblocking(False)
            _notice_loss(opened)
            await loop.sock_connect(opened, place)
            return opened
        except OSError as refused:
            opened.close()
            error = error or refused
        except BaseException:
            opened.close()
            raise
    raise error or ConnectionError("its name has no address")


def _notice_loss(opened: socket.socket) -> None:
    """Lets a connection end when the other host has vanished."""
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _LOSS_SECONDS // 2)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _LOSS_SECONDS // 6)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _LOSS_SECONDS * 1000)


async def answer(opened: socket.socket, security: Security) -> Purpose:
    """Greets a task that has opened a connection, and returns its purpose.

    Raises:
        OSError: the connection ended.
        ValueError: the other end did not prove itself. The message says why.
    """
    loop = asyncio.get_running_loop()
    _notice_loss(opened)
    if await _exactly(opened, len(MAGIC)) != MAGIC:
        raise ValueError("it does not greet as a gateway does; it may be a task without a secret and TLS")
    receiver = Receiver(security, MAGIC + await _exactly(opened, OPENING_BYTES - len(MAGIC)))
    await loop.sock_sendall(opened, receiver.answer)
    if receiver.difference:
        raise ValueError(receiver.difference)
    try:
        receiver.check(await _exactly(opened, PROOF_BYTES))
    except ConnectionError:
        raise ValueError("it ended the greeting; it may know another secret") from None
    return receiver.purpose


async def accept_stream(opened: socket.socket, security: Security) -> Stream:
    """Returns the stream of a connection that `answer` has greeted, and takes it over.

    Raises:
        TlsError: TLS failed. The message says why.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=CHUNK_BYTES, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    encryption = None if security.tls is None else server_context(security.tls)
    try:
        transport, _ = await loop.connect_accepted_socket(lambda: protocol, opened, ssl=encryption)
    except (ConnectionError, ssl.SSLError) as error:
        raise TlsError(f"TLS fails, as with a certificate of another authority: {_words(error)}") from None
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    writer.write(READY)
    return Stream(reader, writer)


async def accept_data(opened: socket.socket, tickets: set[bytes]) -> bytes:
    """Returns the ticket of a connection for tensors that `answer` has greeted, and removes it from those that are valid.

    Raises:
        OSError: the connection ended.
        ValueError: the ticket is not valid.
    """
    ticket = await _exactly(opened, TICKET_BYTES)
    if ticket not in tickets:
        raise ValueError("its connection for tensors has no valid ticket")
    tickets.remove(ticket)
    await asyncio.get_running_loop().sock_sendall(opened, READY)
    return ticket


async def relay(one: Stream, other: Stream) -> None:
    """Passes bytes on in both directions until either end closes or fails. Closes both."""
    copies = [
        asyncio.ensure_future(_copy(one.reader, other.writer)),
        asyncio.ensure_future(_copy(other.reader, one.writer)),
    ]
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for copy in copies:
            copy.cancel()
        await asyncio.gather(*copies, return_exceptions=True)
        await asyncio.gather(_close(one.writer), _close(other.writer))


async def _close(writer: asyncio.StreamWriter) -> None:
    """Closes a stream when the other end has taken all that was sent, or some seconds later."""
    writer.close()
    with contextlib.suppress(OSError):
        try:
            await asyncio.wait_for(writer.wait_closed(), _CLOSING_SECONDS)
        except asyncio.TimeoutError:
            writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while True:
            data = await reader.read(CHUNK_BYTES)
            if not data:
                return
            writer.write(data)
            await writer.drain()


def _words(error: OSError) -> str:
    reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
    return str(reason or "the connection ended").lower().replace("_", " ")


async def _exactly(opened: socket.socket, count: int) -> bytes:
    """Returns the next `count` bytes.

    Raises:
        ConnectionError: the connection ended before.
    """
    loop = asyncio.get_running_loop()
    heard = b""
    while len(heard) < count:
        more = await loop.sock_recv(opened, count - len(heard))
        if not more:
            raise ConnectionError("it closed the connection")
        heard += more
    return heard
