"""Our own TCP transport between all workers."""

from __future__ import annotations

from typing import Sequence

from tf_strategies.native import core
from tf_strategies.native.endpoints.endpoint import Settings, require_equal
from tf_strategies.native.endpoints.mesh import TcpMesh, group_key
from tf_strategies.types import JsonObject

__all__ = ["TcpEndpoint"]


class TcpEndpoint:
    """An Endpoint that listens on the address of this worker in TF_CONFIG."""

    memory = ""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._mesh = TcpMesh(settings.hosts[settings.rank])

    def address(self) -> JsonObject:
        return {"kind": "tcp", "port": self._mesh.port, "memory": ""}

    def connect(self, addresses: Sequence[JsonObject], same_host: Sequence[bool], epoch: int) -> int:
        require_equal("tcp", self._settings, addresses)
        sockets = self.sockets(addresses, [True] * len(same_host), epoch)
        return core.transport_of_sockets(
            rank=self._settings.rank, sockets=sockets, tls_folder=self._settings.tls_folder
        )

    def sockets(self, addresses: Sequence[JsonObject], wanted: Sequence[bool], epoch: int) -> list[int]:
        """Connects this rank to others, and stops listening.

        Args:
            addresses: of all ranks.
            wanted: whether a rank is to be connected, by rank.
            epoch: the number of the group.

        Returns:
            The file descriptors of the connections, by rank; -1 for ranks that are not wanted.

        Raises:
            BootstrapError: some rank cannot be reached.
        """
        settings = self._settings
        places = [
            (each, address["port"]) if is_wanted else None
            for each, address, is_wanted in zip(settings.hosts, addresses, wanted)
        ]
        key = group_key(settings.secret, epoch)
        sockets = self._mesh.connect(settings.rank, places, settings.names, key, settings.timeout)
        self.close()
        return sockets

    def close(self) -> None:
        self._mesh.close()
