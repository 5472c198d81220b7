"""Connects the ranks of a group by TCP, each pair once.

A rank listens on its address of TF_CONFIG alone. It connects to the lower ranks, and the higher ranks connect to it.
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import os
import socket
import time
from typing import Sequence

from tf_strategies.errors import BootstrapError
from tf_strategies.name_lookup import look_up
from tf_strategies.native.endpoints.meeting import Meeting

__all__ = ["PORTS", "TcpMesh", "group_key", "listen", "ports_of"]

_BACKLOG = 128
PORTS = "TF_STRATEGIES_PORTS"  # the environment variable


def group_key(secret: bytes, epoch: int) -> bytes:
    """Returns the key of the data connections of one group.

    Args:
        secret: of the cluster; empty where it has none.
        epoch: the number of the group, which no other has.
    """
    return hmac.digest(secret, b"tf_strategies data %d" % epoch, "sha256")


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
            self._listener = listen(host, ports_of(os.environ.get(PORTS, "0-0")))
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
        meeting = Meeting(self._listener, rank, addresses, key)
        with contextlib.closing(meeting):
            missing = meeting.run(time.monotonic() + timeout)
            if missing:
                raise BootstrapError(_unreachable(names[rank], missing, meeting.addresses, names, timeout))
            return meeting.detach()


def ports_of(text: str) -> range:
    """Returns the ports of a range such as "40000-40100".

    Raises:
        BootstrapError: it is no range of ports.
    """
    first, _, last = text.partition("-")
    if first.isdecimal() and last.isdecimal() and int(first) <= int(last) < 1 << 16:
        return range(int(first), int(last) + 1)
    raise BootstrapError(f'{PORTS} must be a range of ports such as "40000-40100"; got {text!r}')


def listen(host: str, ports: range) -> socket.socket:
    """Returns a socket that listens on the first of these ports that is free; on any for port 0."""
    family = look_up(host, 0)[0][0]
    for port in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(look_up(host, port)[0][4])
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
