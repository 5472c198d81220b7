"""Finds free ports and keeps them reserved.

A port that is found with a socket, which is then closed, can be given to another process before it is used.
Here the socket stays bound, without listening. The kernel then gives the port to no process that asks for any
free port. A server that names the port and sets SO_REUSEADDR, as gRPC does, can still listen on it.
"""

from __future__ import annotations

import socket
from types import TracebackType


class ReservedPorts:
    """Reserves free TCP ports of a local address until it is closed.

    It may stay open while servers use the ports, or be closed when they listen.

    Args:
        count: the number of ports.
        host: a local IPv4 or IPv6 address.

    Attributes:
        host: the address given.
        ports: the reserved ports, all different.
    """

    def __init__(self, count: int, host: str = "127.0.0.1") -> None:
        self.host = host
        self._sockets: list[socket.socket] = []
        try:
            for _ in range(count):
                self._sockets.append(_bind_any(host))
        except OSError:
            self.close()
            raise
        self.ports: tuple[int, ...] = tuple(held.getsockname()[1] for held in self._sockets)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The reserved addresses as TF_CONFIG spells them, "host:port"."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return tuple(f"{host}:{port}" for port in self.ports)

    def close(self) -> None:
        """Releases the ports."""
        for held in self._sockets:
            held.close()
        self._sockets.clear()

    def __enter__(self) -> ReservedPorts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _bind_any(host: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, 0))
    except OSError:
        held.close()
        raise
    return held
