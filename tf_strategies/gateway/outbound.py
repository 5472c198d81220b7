"""Is the HTTP proxy through which gRPC in this task connects to other tasks (RFC 9110, section 9.3.6, CONNECT)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from pathlib import Path
from typing import Collection
from urllib.parse import unquote

from tf_strategies.addresses import split_address
from tf_strategies.gateway.greeting import Purpose, Security
from tf_strategies.gateway.streams import CHUNK_BYTES, GREETING_SECONDS, Stream, open_stream, relay

__all__ = ["serve_proxy"]


async def serve_proxy(addresses: Collection[str], security: Security) -> tuple[asyncio.AbstractServer, int]:
    """Starts the proxy, on a free port of 127.0.0.1, for processes of this user.

    Args:
        addresses: "host:port" of the tasks. Their gateways are greeted. Connections to others are passed on as they are.
        security: of this task.

    Returns:
        The server, and its port.
    """
    tasks = {split_address(each) for each in addresses}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if _user_of(writer.get_extra_info("peername"), writer.get_extra_info("sockname")) != os.getuid():
                return
            target = await asyncio.wait_for(_target(reader), GREETING_SECONDS)
            try:
                if split_address(target) in tasks:
                    onward = await open_stream(target, security, Purpose.TENSORFLOW)
                else:
                    connecting = asyncio.open_connection(*split_address(target), limit=CHUNK_BYTES)
                    onward = Stream(*await asyncio.wait_for(connecting, GREETING_SECONDS))
            except (OSError, ValueError, asyncio.TimeoutError) as error:
                reason = " ".join(str(error).split()) or "no answer"
                writer.write(f"HTTP/1.1 502 {reason}\r\n\r\n".encode("ascii", "replace"))
                return
            writer.write(b"HTTP/1.1 200 connected\r\n\r\n")
            await relay(Stream(reader, writer), onward)
        except (OSError, ValueError, asyncio.TimeoutError, asyncio.IncompleteReadError):
            return
        finally:
            with contextlib.suppress(OSError):
                writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=CHUNK_BYTES)
    return server, server.sockets[0].getsockname()[1]


async def _target(reader: asyncio.StreamReader) -> str:
    """Returns the address that a request names.

    Raises:
        ValueError: it is no CONNECT request.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise ValueError("the request is too long") from None
    words = head.split(b"\r\n", 1)[0].decode("ascii", "replace").split(" ")
    if len(words) != 3 or words[0] != "CONNECT":
        raise ValueError("only CONNECT is served")
    return unquote(words[1])


def _user_of(client: tuple[str, int], server: tuple[str, int]) -> int:
    """Returns the user whose process has opened a connection over the loopback interface, or -1 if it is not found."""
    for table, spelled in (("tcp", _spelled), ("tcp6", _spelled_as_ipv6)):
        ends = [spelled(client), spelled(server)]
        with contextlib.suppress(FileNotFoundError):  # a kernel without IPv6
            for line in Path("/proc/self/net", table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[1:3] == ends:
                    return int(fields[7])
    return -1


def _spelled(address: tuple[str, int]) -> str:
    """Returns an IPv4 address and port as /proc/net/tcp spells them: the address as a number in this machine's byte order."""
    number = struct.unpack("=I", socket.inet_aton(address[0]))[0]
    return f"{number:08X}:{address[1]:04X}"


def _spelled_as_ipv6(address: tuple[str, int]) -> str:
    """Does the same for an IPv6 socket with an IPv4 address, which gRPC uses: 16 bytes as four numbers."""
    mapped = struct.unpack("=I", b"\0\0\xff\xff")[0]
    return f"{0:016X}{mapped:08X}{_spelled(address)}"
