"""The wires between workers: UCX, and TCP of our own."""

from __future__ import annotations

import base64
import logging
import os
from typing import Any, Protocol, Sequence

from tf_strategies.errors import BootstrapError
from tf_strategies.native import core, host
from tf_strategies.native.tcp_mesh import TcpMesh, group_key

__all__ = ["Wire", "open_wire"]

_log = logging.getLogger("tf_strategies")


class Wire(Protocol):
    """Defines what a worker opens before it meets the others, and connects afterwards.

    Attributes:
        shares_memory: whether workers of one host need no network.
    """

    shares_memory: bool

    def address(self) -> dict[str, Any]:
        """Returns what the others need to connect, as JSON."""

    def connect(
        self, rank: int, addresses: Sequence[dict[str, Any]], same_host: Sequence[bool], epoch: int
    ) -> int:
        """Returns the id of a transport to all ranks. The wire is consumed.

        Args:
            rank: this rank.
            addresses: of all ranks.
            same_host: whether each rank is on this host.
            epoch: the number of the group.

        Raises:
            BootstrapError: some rank cannot be reached.
        """

    def close(self) -> None:
        """Closes a wire that was not connected. May be called again."""


def open_wire(
    names: Sequence[str], rank: int, hosts: Sequence[str], transport: str, timeout: float, secret: bytes
) -> Wire:
    """Opens the wire of a worker.

    Args:
        names: of all workers, for messages.
        rank: of this one.
        hosts: of all workers, as in TF_CONFIG.
        transport: as in CommunicationOptions. "tcp" is TCP of our own, unless UCX_TLS asks for UCX.
        timeout: seconds that a connection may take.
        secret: of the cluster; b"" if it has none.

    Raises:
        BootstrapError: the wire cannot be opened.
    """
    if transport == "tcp" and "UCX_TLS" not in os.environ:
        return TcpWire(names, hosts, rank, timeout, secret)
    return UcxWire(names[rank], transport, host.net_devices(hosts[rank]))


class UcxWire:
    """The best transport of UCX that this host allows."""

    def __init__(self, name: str, transport: str, net_devices: str) -> None:
        self._worker, self._address, self.shares_memory = _open_worker(name, transport, net_devices)

    def address(self) -> dict[str, Any]:
        return {"address": base64.b64encode(self._address).decode(), "shares_memory": self.shares_memory}

    def connect(
        self, rank: int, addresses: Sequence[dict[str, Any]], same_host: Sequence[bool], epoch: int
    ) -> int:
        del epoch
        return core.transport_of_worker(
            self._worker,
            rank=rank,
            addresses=[base64.b64decode(each["address"], validate=True) for each in addresses],
            same_host=list(same_host),
        )

    def close(self) -> None:
        core.close_worker(self._worker)


def _open_worker(name: str, transport: str, net_devices: str) -> tuple[int, bytes, bool]:
    """Opens a worker of UCX; its id, its address, and whether it can do without a network."""
    reason = ""
    for choice in host.transports(transport):
        try:
            opened = core.open_worker(transports=choice, net_devices=net_devices)
        except BootstrapError as error:
            reason = reason or str(error)
            continue
        if reason:
            _log.warning("%s: %s; goes on with UCX_TLS=%s, which may be slower", name, reason, choice)
        return opened
    raise BootstrapError(
        f"{name}: {reason}; see this host's limits (df /dev/shm, sysctl kernel.shmmax, ulimit -l), or use "
        "CommunicationOptions(transport='tcp')"
    )


class TcpWire:
    """TCP of our own, between all workers."""

    shares_memory = False

    def __init__(
        self, names: Sequence[str], hosts: Sequence[str], rank: int, timeout: float, secret: bytes
    ) -> None:
        self._names, self._hosts, self._timeout, self._secret = names, hosts, timeout, secret
        self._mesh = TcpMesh(hosts[rank])

    def address(self) -> dict[str, Any]:
        return {"port": self._mesh.port, "shares_memory": False}

    def connect(
        self, rank: int, addresses: Sequence[dict[str, Any]], same_host: Sequence[bool], epoch: int
    ) -> int:
        del same_host
        ports = [(each, address["port"]) for each, address in zip(self._hosts, addresses)]
        sockets = self._mesh.connect(rank, ports, self._names, group_key(self._secret, epoch), self._timeout)
        self.close()
        return core.transport_of_sockets(rank=rank, sockets=sockets)

    def close(self) -> None:
        self._mesh.close()
