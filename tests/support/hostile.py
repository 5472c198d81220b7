"""A stranger's traffic to a port: nonsense, torn HTTP/2, well-formed calls with wrong content.

Everything is made from a seed and bounded in bytes and time. Connections stay open until the stranger is closed.
"""

from __future__ import annotations

import contextlib
import json
import queue
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc

from tf_strategies.control_plane import stream_handshake
from tf_strategies.handshake import Session

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS = struct.pack(">I", 0)[1:] + b"\x04\x00" + struct.pack(">I", 0)
_DATA, _HEADERS, _SETTINGS_FRAME, _PING, _CONTINUATION = 0, 1, 4, 6, 9
_JOIN = "/tf_strategies.ControlPlane/Join"
_SECONDS = 5.0


def frame(kind: int, body: bytes, *, length: int | None = None, flags: int = 0, stream: int = 1) -> bytes:
    """An HTTP/2 frame; `length` is what its head claims."""
    claimed = len(body) if length is None else length
    return struct.pack(">I", claimed)[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def torn_http2() -> Iterator[bytes]:
    """Openings of HTTP/2 connections that go wrong."""
    start = _PREFACE + _SETTINGS
    yield _PREFACE[:11]
    yield _PREFACE + _SETTINGS[:5]
    yield start + frame(_SETTINGS_FRAME, b"", length=0xFFFFFF, stream=0)
    yield start + frame(_HEADERS, b"\x00" * 100, length=0xFFFFFF)
    yield start + frame(_HEADERS, b"\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff", flags=4)
    yield start + frame(_HEADERS, b"\x82") + frame(_CONTINUATION, b"\x00" * 4096) * 200
    yield start + frame(_DATA, b"\x00" + struct.pack(">I", 0xFFFFFFFF), stream=7)
    yield start + frame(_PING, b"12345678", stream=0) * 2000
    yield b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999\r\n\r\n"
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64)


class Stranger:
    """Talks to one address. Leaving the block closes its connections.

    Args:
        address: "host:port", IPv4.
        seed: of the nonsense.
    """

    def __init__(self, address: str, seed: int = 1) -> None:
        host, _, port = address.rpartition(":")
        self._place = (host, int(port))
        self._random = random.Random(seed)
        self._sockets: list[socket.socket] = []
        self._channel = grpc.insecure_channel(
            f"ipv4:{address}", options=[("grpc.max_send_message_length", -1)]
        )

    def opened(self) -> socket.socket:
        """Opens a connection for the caller."""
        return socket.create_connection(self._place, _SECONDS)

    def connect(self, first: bytes = b"") -> None:
        """Opens a connection, sends `first` as far as it is taken, and keeps it open."""
        with contextlib.suppress(OSError):
            opened = self.opened()
            self._sockets.append(opened)
            opened.settimeout(1.0)
            opened.sendall(first)

    def send_nonsense(self, connections: int, size: int = 1 << 16) -> None:
        for _ in range(connections):
            self.connect(self._random.randbytes(size))

    def send_torn_http2(self) -> None:
        for opening in torn_http2():
            self.connect(opening)

    def open_idle(self, silent: int, greeted: int) -> None:
        """Half-open connections: some that never speak, some that speak HTTP/2 and then call nothing."""
        for _ in range(silent):
            self.connect()
        for _ in range(greeted):
            self.connect(_PREFACE + _SETTINGS)

    def join_with(
        self, *messages: Any, secret: bytes = b"", sealed: Callable[..., list[bytes]] | None = None
    ) -> tuple[list[dict], str]:
        """Calls Join with messages, bytes as they are, others as JSON, after a handshake with a secret.

        Args:
            messages: in order.
            secret: of the job.
            sealed: returns the requests for `Session.seal` and the bytes of a message; by default one, which is sealed.

        Returns:
            The answers, and the name of the status code.
        """
        answers, code, _ = self._join(messages, secret, sealed or (lambda seal, message: [seal(message)]))
        return answers, code

    def record_join(self, *messages: Any, secret: bytes) -> list[bytes]:
        """Does the same, and returns all that was said, byte by byte."""
        return self._join(messages, secret, lambda seal, message: [seal(message)])[2]

    def say(self, *requests: bytes) -> tuple[list[bytes], str]:
        """Calls Join with requests as they are. Returns what comes back, and the name of the status code."""
        answers: list[bytes] = []
        return answers, self._call(iter(requests), answers.append)

    def _join(
        self, messages: tuple[Any, ...], secret: bytes, sealed: Callable[..., list[bytes]]
    ) -> tuple[list[dict], str, list[bytes]]:
        connecting = stream_handshake.connect(secret)
        sessions: queue.SimpleQueue[tuple[bytes, Session]] = queue.SimpleQueue()
        said, answers, session = [connecting.opening], [], None

        def requests() -> Iterator[bytes]:
            yield connecting.opening
            proof, session = sessions.get(timeout=_SECONDS)
            for message in messages:
                data = message if isinstance(message, bytes) else json.dumps(message).encode()
                said.extend(sealed(session.seal, data))
            said.insert(1, proof)
            yield from said[1:]

        def take(answer: bytes) -> None:
            nonlocal session
            if session is None:
                proof, session = stream_handshake.answer(connecting, secret, answer)
                sessions.put((proof, session))
            else:
                answers.append(json.loads(session.open(answer)))

        return answers, self._call(requests(), take), said

    def _call(self, requests: Iterator[bytes], take: Callable[[bytes], object]) -> str:
        ended = threading.Event()

        def say() -> Iterator[bytes]:
            yield from requests
            ended.wait(2 * _SECONDS)  # as a member does, who keeps its side open

        try:
            for answer in self._channel.stream_stream(_JOIN)(say(), timeout=_SECONDS):
                take(answer)
        except grpc.RpcError as error:
            return str(error.code().name)
        finally:
            ended.set()
        return "OK"

    def call_elsewhere(self) -> str:
        """Calls a method that nobody offers; the status code's name."""
        try:
            self._channel.unary_unary("/tf_strategies.ControlPlane/Shutdown")(b"now", timeout=_SECONDS)
        except grpc.RpcError as error:
            return error.code().name
        return "OK"

    def __enter__(self) -> Stranger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()
        for each in self._sockets:
            each.close()


def listening_ports(pid: int) -> dict[int, str]:
    """The TCP ports on which a process listens for IPv4, with the address of each."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(link.readlink())
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    ports = {}
    for table in ("tcp", "tcp6"):  # gRPC listens on IPv4 through IPv6 sockets
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                address, _, port = fields[1].partition(":")
                ports[int(port, 16)] = socket.inet_ntoa(struct.pack("<I", int(address[-8:], 16)))
    return ports
