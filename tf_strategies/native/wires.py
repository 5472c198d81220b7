"""The wires between workers: UCX, TCP of our own, and one by host, of both."""

from __future__ import annotations

import base64
import logging
import os
from pathlib import Path
from typing import Any, Protocol, Sequence

from tf_strategies.errors import BootstrapError
from tf_strategies.native import core, host
from tf_strategies.native.tcp_mesh import TcpMesh, group_key
from tf_strategies.tls import TLS_FOLDER

__all__ = ["Wire", "open_wire"]

_log = logging.getLogger("tf_strategies")

# Values of UCX_TLS that open shared memory alone, to be tried in this order: UCX opens nothing where one kind that it was told
# to use cannot be had, as in containers that forbid it. Without "self" it is known to work when it is open.
_MEMORY = ("sm", "sysv,cma", "posix,cma")


class Wire(Protocol):
    """Defines what a worker opens before it meets the others, and connects afterwards.

    Attributes:
        memory: workers of one host share memory if they have the same text here; "" where they need the network.
    """

    memory: str

    def address(self) -> dict[str, Any]:
        """Returns what the others need to connect, as JSON, with `memory`."""

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
    names: Sequence[str],
    rank: int,
    hosts: Sequence[str],
    transport: str,
    timeout: float,
    secret: bytes,
    tls_folder: str = "",
) -> Wire:
    """Opens the wire of a worker.

    Args:
        names: of all workers, for messages.
        rank: of this one.
        hosts: of all workers, as in TF_CONFIG.
        transport: as in CommunicationOptions. "auto" is "ucx" where UCX_TLS is set.
        timeout: seconds that a connection may take.
        secret: of the cluster; b"" if it has none.
        tls_folder: of this worker's certificate; "" for connections without TLS.

    Raises:
        BootstrapError: the wire cannot be opened.
    """
    if transport == "tcp":
        return TcpWire(names, hosts, rank, timeout, secret, tls_folder)
    if transport == "auto" and "UCX_TLS" not in os.environ:
        return ByHostWire(names, hosts, rank, timeout, secret, tls_folder)
    return UcxWire(names, rank, transport, host.net_devices(hosts[rank]), tls_folder)


def _require_equal(wire: str, names: Sequence[str], rank: int, addresses: Sequence[dict[str, Any]]) -> None:
    """Raises BootstrapError if another rank has opened another kind of wire, which UCX_TLS can bring about."""
    for name, address in zip(names, addresses):
        if address["wire"] != wire:
            raise BootstrapError(
                f"{name} connects by {address['wire']!r}, and {names[rank]} by {wire!r}; set UCX_TLS on all workers, or on none"
            )


class UcxWire:
    """UCX between all workers. Whoever reaches its ports can write into this process."""

    def __init__(
        self, names: Sequence[str], rank: int, transport: str, net_devices: str, tls_folder: str = ""
    ) -> None:
        self._names, self._is_default = names, transport == "auto"
        self._must_encrypt = tls_folder != "" and transport != "shared_memory"
        self._worker, self._address, shares_memory = _open_worker(names[rank], transport, net_devices)
        self.memory = "ucx" if shares_memory else ""

    def address(self) -> dict[str, Any]:
        return {
            "wire": "ucx",
            "address": base64.b64encode(self._address).decode(),
            "memory": self.memory,
        }

    def connect(
        self, rank: int, addresses: Sequence[dict[str, Any]], same_host: Sequence[bool], epoch: int
    ) -> int:
        del epoch
        _require_equal("ucx", self._names, rank, addresses)
        if self._must_encrypt and not all(same_host):
            raise BootstrapError(
                f"{self._names[rank]}: {TLS_FOLDER} is set, and UCX, which cannot encrypt, would connect the hosts; use "
                "CommunicationOptions(transport='auto') without UCX_TLS in the environment, or transport='tcp'"
            )
        if self._is_default and not all(same_host):
            _log.warning(
                "%s: UCX_TLS=%s is set, so UCX connects the hosts, as with transport='ucx': whoever reaches its ports can write "
                "into this process; use it on a network that nobody else reaches, or unset UCX_TLS",
                self._names[rank],
                os.environ.get("UCX_TLS", ""),
            )
        return core.transport_of_worker(
            self._worker,
            rank=rank,
            addresses=[_decoded(each) for each in addresses],
            same_host=list(same_host),
        )

    def close(self) -> None:
        core.close_worker(self._worker)


def _decoded(address: dict[str, Any]) -> bytes:
    return base64.b64decode(address["address"], validate=True)


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

    memory = ""

    def __init__(
        self,
        names: Sequence[str],
        hosts: Sequence[str],
        rank: int,
        timeout: float,
        secret: bytes,
        tls_folder: str = "",
    ) -> None:
        self._names, self._hosts, self._timeout = names, hosts, timeout
        self._secret, self._tls_folder = secret, tls_folder
        self._mesh = TcpMesh(hosts[rank])

    def address(self) -> dict[str, Any]:
        return {"wire": "tcp", "port": self._mesh.port, "memory": ""}

    def connect(
        self, rank: int, addresses: Sequence[dict[str, Any]], same_host: Sequence[bool], epoch: int
    ) -> int:
        _require_equal("tcp", self._names, rank, addresses)
        sockets = self.sockets(rank, addresses, [True] * len(same_host), epoch)
        return core.transport_of_sockets(rank=rank, sockets=sockets, tls_folder=self._tls_folder)

    def sockets(
        self, rank: int, addresses: Sequence[dict[str, Any]], wanted: Sequence[bool], epoch: int
    ) -> list[int]:
        """Returns a connection to each rank that is wanted, by rank, and -1 for others. This rank listens no more.

        Raises:
            BootstrapError: some rank cannot be reached.
        """
        ports = [
            (each, address["port"]) if is_wanted else None
            for each, address, is_wanted in zip(self._hosts, addresses, wanted)
        ]
        sockets = self._mesh.connect(rank, ports, self._names, group_key(self._secret, epoch), self._timeout)
        self.close()
        return sockets

    def close(self) -> None:
        self._mesh.close()


class ByHostWire:
    """Shared memory between the workers of a host, by UCX without its TCP, and TCP of our own between all others."""

    def __init__(
        self,
        names: Sequence[str],
        hosts: Sequence[str],
        rank: int,
        timeout: float,
        secret: bytes,
        tls_folder: str = "",
    ) -> None:
        self._names, self._tls_folder = names, tls_folder
        self._tcp: TcpWire | None = None
        self._without_tcp = ""  # why; a group of one host does not mind
        try:
            self._tcp = TcpWire(names, hosts, rank, timeout, secret, tls_folder)
        except BootstrapError as error:
            self._without_tcp = str(error)
        self._worker, self._address, self.memory = _open_memory(names[rank])

    def address(self) -> dict[str, Any]:
        return {
            **(self._tcp.address() if self._tcp is not None else {"without_tcp": self._without_tcp}),
            "wire": "auto",
            "address": base64.b64encode(self._address).decode(),
            "memory": self.memory,
        }

    def connect(
        self, rank: int, addresses: Sequence[dict[str, Any]], same_host: Sequence[bool], epoch: int
    ) -> int:
        _require_equal("auto", self._names, rank, addresses)
        shared = [
            each == rank or (is_here and self.memory != "" and address["memory"] == self.memory)
            for each, (address, is_here) in enumerate(zip(addresses, same_host))
        ]
        near = [_decoded(address) if is_shared else b"" for address, is_shared in zip(addresses, shared)]
        if all(shared) and self.memory:
            self._stop_listening()
            return core.transport_of_worker(self._worker, rank=rank, addresses=near, same_host=shared)
        sockets = self._sockets(rank, addresses, shared, epoch)
        if sum(shared) > 1:
            return core.transport_by_host(
                self._worker, rank=rank, addresses=near, sockets=sockets, tls_folder=self._tls_folder
            )
        self.close()
        return core.transport_of_sockets(rank=rank, sockets=sockets, tls_folder=self._tls_folder)

    def _sockets(
        self, rank: int, addresses: Sequence[dict[str, Any]], shared: Sequence[bool], epoch: int
    ) -> list[int]:
        """Returns a connection to each rank that shares no memory with this one, by rank, and -1 for others."""
        if all(shared):
            return [-1] * len(shared)
        for name, address in zip(self._names, addresses):
            if "without_tcp" in address:
                raise BootstrapError(
                    f"{name} {address['without_tcp']}; TF_CONFIG must name an address of its own, and TF_STRATEGIES_PORTS have a "
                    "free port; where the network translates addresses use CommunicationOptions(transport='ucx')"
                )
        if self._tcp is None:
            raise BootstrapError(f"{self._names[rank]} {self._without_tcp}")
        return self._tcp.sockets(rank, addresses, [not each for each in shared], epoch)

    def _stop_listening(self) -> None:
        if self._tcp is not None:
            self._tcp.close()

    def close(self) -> None:
        self._stop_listening()
        core.close_worker(self._worker)


def _open_memory(name: str) -> tuple[int, bytes, str]:
    """Opens a worker of UCX for shared memory alone; its id, its address, and `Wire.memory`: -1, b"" and "" if there is none."""
    reason = ""
    for choice in _MEMORY:
        try:
            worker, address, _ = core.open_worker(transports=choice, net_devices="")
        except BootstrapError as error:
            reason = reason or str(error)
            continue
        if reason:
            _log.warning("%s: %s; goes on with UCX_TLS=%s, which may be slower", name, reason, choice)
        # System V memory alone is reached from a container that has processes of its own.
        scope = f" {Path('/proc/self/ns/pid').readlink()}" if "posix" in choice else ""
        return worker, address, choice + scope
    _log.warning("%s: %s; goes on with TCP to the workers of its host, which may be slower", name, reason)
    return -1, b"", ""
