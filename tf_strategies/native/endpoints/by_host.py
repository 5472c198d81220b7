"""Shared memory between the workers of a host, by UCX without its TCP, and our own TCP transport between all others."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Sequence

from tf_strategies.errors import BootstrapError
from tf_strategies.native import core
from tf_strategies.native.endpoints.endpoint import Settings, decoded, encoded, require_equal
from tf_strategies.native.endpoints.tcp import TcpEndpoint
from tf_strategies.types import JsonObject

__all__ = ["ByHostEndpoint"]

_log = logging.getLogger("tf_strategies")

# Values of UCX_TLS that open shared memory alone, in the order in which they are tried. UCX opens nothing if one of the named
# kinds is missing, as in containers that forbid it. Without "self" in the value, an open worker shares memory for certain.
_MEMORY = ("sm", "sysv,cma", "posix,cma")


class ByHostEndpoint:
    """An Endpoint that opens shared memory and TCP."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tcp: TcpEndpoint | None = None
        self._without_tcp = ""  # the reason; a group of one host needs no TCP
        try:
            self._tcp = TcpEndpoint(settings)
        except BootstrapError as error:
            self._without_tcp = str(error)
        self._worker, self._address, self.memory = _open_memory(settings.name)

    def address(self) -> JsonObject:
        return {
            **(self._tcp.address() if self._tcp is not None else {"without_tcp": self._without_tcp}),
            "kind": "auto",
            "address": encoded(self._address),
            "memory": self.memory,
        }

    def connect(self, addresses: Sequence[JsonObject], same_host: Sequence[bool], epoch: int) -> int:
        require_equal("auto", self._settings, addresses)
        rank, tls_folder = self._settings.rank, self._settings.tls_folder
        shared = [
            each == rank or (is_here and self.memory != "" and address["memory"] == self.memory)
            for each, (address, is_here) in enumerate(zip(addresses, same_host))
        ]
        near = [decoded(address) if is_shared else b"" for address, is_shared in zip(addresses, shared)]
        if all(shared) and self.memory:
            self._stop_listening()
            return core.transport_of_worker(self._worker, rank=rank, addresses=near, same_host=shared)
        sockets = self._sockets(addresses, shared, epoch)
        if sum(shared) > 1:
            return core.transport_by_host(
                self._worker, rank=rank, addresses=near, sockets=sockets, tls_folder=tls_folder
            )
        self.close()
        return core.transport_of_sockets(rank=rank, sockets=sockets, tls_folder=tls_folder)

    def _sockets(self, addresses: Sequence[JsonObject], shared: Sequence[bool], epoch: int) -> list[int]:
        """Returns a connection to each rank that shares no memory with this one, by rank, and -1 for others."""
        if all(shared):
            return [-1] * len(shared)
        for name, address in zip(self._settings.names, addresses):
            if "without_tcp" in address:
                raise BootstrapError(
                    f"{name} {address['without_tcp']}; TF_CONFIG must name an address of its own, and TF_STRATEGIES_PORTS have a "
                    "free port; where the network translates addresses use CommunicationOptions(transport='ucx')"
                )
        if self._tcp is None:
            raise BootstrapError(f"{self._settings.name} {self._without_tcp}")
        return self._tcp.sockets(addresses, [not each for each in shared], epoch)

    def _stop_listening(self) -> None:
        if self._tcp is not None:
            self._tcp.close()

    def close(self) -> None:
        self._stop_listening()
        core.close_worker(self._worker)


def _open_memory(name: str) -> tuple[int, bytes, str]:
    """Opens a worker of UCX for shared memory alone.

    Returns:
        Its id, its address, and `Endpoint.memory`; -1, b"" and "" if there is no shared memory.
    """
    reason = ""
    for choice in _MEMORY:
        try:
            worker, address, _ = core.open_worker(transports=choice, net_devices="")
        except BootstrapError as error:
            reason = reason or str(error)
            continue
        if reason:
            _log.warning("%s: %s; goes on with UCX_TLS=%s, which may be slower", name, reason, choice)
        # A container with processes of its own reaches System V memory alone.
        scope = f" {Path('/proc/self/ns/pid').readlink()}" if "posix" in choice else ""
        return worker, address, choice + scope
    _log.warning("%s: %s; goes on with TCP to the workers of its host, which may be slower", name, reason)
    return -1, b"", ""
