"""Measures the wire between two tasks, on a data connection of its own, and finds links that lose large packets.

both ways, ROUNDS times   one byte                       -> the latency
connecting end            bytes for RATE_SECONDS, end    -> the bandwidth there, which the accepting end measures
accepting end             the result, bytes, end         -> the bandwidth back
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import struct
import time
from typing import Tuple

from tf_strategies.doctor.link import Link, LinkError, exactly

__all__ = ["answer_large", "measure_wire", "send_large", "serve_wire"]

_ROUNDS = 30
_RATE_SECONDS = 0.25
_MOST_BYTES = 48 << 20
_CHUNK = bytes(128 << 10)
# Little waits in the sender of a slow link, and so the measurement ends soon.
_BUFFER_BYTES = 256 << 10
_SECONDS = 5.0
_RESULT = struct.Struct("!Qd")
_LARGE = bytes(64 << 10)  # several segments of any Ethernet
_LARGE_SECONDS = 3.0


async def send_large(link: Link) -> str:
    """Exchanges messages of several segments with the other end of a connection.

    Returns:
        "ok"; "out" or "in" if those to or from the other end do not arrive, although the connection was made.

    Raises:
        LinkError: the connection has ended.
    """
    loop = asyncio.get_running_loop()
    missing = "out"
    try:
        await asyncio.wait_for(loop.sock_sendall(link.socket, _LARGE), _LARGE_SECONDS)
        await link.receive(_LARGE_SECONDS)
        missing = "in"
        await asyncio.wait_for(exactly(link.socket, len(_LARGE)), _LARGE_SECONDS)
    except (asyncio.TimeoutError, TimeoutError):
        return missing
    except OSError as error:
        raise LinkError.of(error) from None
    except LinkError as error:
        if error.kind != "mute":  # only silence is a sign of lost packets
            raise
        return missing
    return "ok"


async def answer_large(link: Link) -> None:
    """Serves as the other end of `send_large`.

    Raises:
        LinkError: the connection has ended.
        OSError: the same.
        asyncio.TimeoutError: the messages do not arrive.
    """
    loop = asyncio.get_running_loop()
    await asyncio.wait_for(exactly(link.socket, len(_LARGE)), 2 * _LARGE_SECONDS)
    await link.send({"kind": "got"})
    await asyncio.wait_for(loop.sock_sendall(link.socket, _LARGE), _LARGE_SECONDS)


def measure_wire(opened: socket.socket) -> Tuple[float, float, float]:
    """Measures a connection. The other end calls `serve_wire` meanwhile.

    Returns:
        The median round trip in seconds, and the bytes a second to the other end and back.

    Raises:
        OSError: the connection ended, or nothing came for some seconds.
    """
    _prepare(opened)
    trips = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        opened.sendall(b"\1")
        _receive(opened, 1)
        trips.append(time.perf_counter() - start)
    _pour(opened)
    opened.shutdown(socket.SHUT_WR)
    count, seconds = _RESULT.unpack(_receive(opened, _RESULT.size))
    return statistics.median(trips), _rate(count, seconds), _rate(*_drain(opened))


def serve_wire(opened: socket.socket) -> None:
    """Serves as the other end of `measure_wire`.

    Raises:
        OSError: the connection ended, or nothing came for some seconds.
    """
    _prepare(opened)
    for _ in range(_ROUNDS):
        opened.sendall(_receive(opened, 1))
    opened.sendall(_RESULT.pack(*_drain(opened)))
    _pour(opened)
    opened.shutdown(socket.SHUT_WR)


def _prepare(opened: socket.socket) -> None:
    opened.settimeout(_SECONDS)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)


def _pour(opened: socket.socket) -> None:
    """Sends for a time, or a number of bytes."""
    end, left = time.perf_counter() + _RATE_SECONDS, _MOST_BYTES
    while left > 0 and time.perf_counter() < end:
        opened.sendall(_CHUNK)
        left -= len(_CHUNK)


def _drain(opened: socket.socket) -> Tuple[int, float]:
    """Receives to the end. Returns the bytes after the first ones, and the seconds in which they came."""
    buffer = bytearray(len(_CHUNK))
    total, first, start, last = 0, 0, 0.0, 0.0
    while True:
        count = opened.recv_into(buffer)
        now = time.perf_counter()
        if not count:
            return total - first, last - start if total else 0.0
        if not total:
            start, first = now, count
        total, last = total + count, now
        if total > 2 * _MOST_BYTES:
            raise OSError("it sends more than it may")


def _rate(count: int, seconds: float) -> float:
    return count / seconds if count > 0 and seconds > 0 else 0.0


def _receive(opened: socket.socket, count: int) -> bytes:
    heard = b""
    while len(heard) < count:
        more = opened.recv(count - len(heard))
        if not more:
            raise OSError("it closed the connection")
        heard += more
    return heard
