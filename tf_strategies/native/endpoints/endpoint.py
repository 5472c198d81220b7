"""Defines the end of a worker in the connections of its group."""

from __future__ import annotations

import base64
import dataclasses
from typing import Protocol, Sequence

from tf_strategies.errors import BootstrapError
from tf_strategies.types import JsonObject

__all__ = ["Endpoint", "Settings", "decoded", "encoded", "require_equal"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Holds what a worker knows before it meets the others.

    Attributes:
        names: of all workers, for messages.
        hosts: of all workers, as in TF_CONFIG.
        rank: of this worker.
        timeout: seconds that connecting may take.
        secret: of the cluster; b"" if it has none.
        tls_folder: the folder with the certificate of this worker; "" for connections without TLS.
    """

    names: Sequence[str]
    hosts: Sequence[str]
    rank: int
    timeout: float
    secret: bytes = b""
    tls_folder: str = ""

    @property
    def name(self) -> str:
        """The name of this worker."""
        return self.names[self.rank]


class Endpoint(Protocol):
    """Defines what a worker opens before it meets the others, and connects afterwards.

    Attributes:
        memory: workers of one host share memory if they have the same text here; "" for a worker that needs the network.
    """

    memory: str

    def address(self) -> JsonObject:
        """Returns what the other workers need to connect, as JSON, with `memory`."""

    def connect(self, addresses: Sequence[JsonObject], same_host: Sequence[bool], epoch: int) -> int:
        """Connects all ranks. Returns the id of the transport. The endpoint cannot be used again.

        Args:
            addresses: of all ranks.
            same_host: whether each rank is on this host.
            epoch: the number of the group.

        Raises:
            BootstrapError: some rank cannot be reached.
        """

    def close(self) -> None:
        """Closes an endpoint that was not connected. May be called again."""


def require_equal(kind: str, settings: Settings, addresses: Sequence[JsonObject]) -> None:
    """Raises BootstrapError if another rank has opened another kind of endpoint, as happens if UCX_TLS is set on some only."""
    for name, address in zip(settings.names, addresses):
        if address["kind"] != kind:
            raise BootstrapError(
                f"{name} connects by {address['kind']!r}, and {settings.name} by {kind!r}; set UCX_TLS on all workers, or on none"
            )


def encoded(address: bytes) -> str:
    """Returns an address of UCX as text for JSON."""
    return base64.b64encode(address).decode()


def decoded(address: JsonObject) -> bytes:
    """Returns the address of UCX in what a worker has sent."""
    return base64.b64decode(address["address"], validate=True)
