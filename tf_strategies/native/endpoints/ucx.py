"""UCX between all workers. Whoever reaches its ports can write into this process."""

from __future__ import annotations

import logging
import os
from typing import Sequence

from tf_strategies.errors import BootstrapError
from tf_strategies.native import core, host
from tf_strategies.native.endpoints.endpoint import Settings, decoded, encoded, require_equal
from tf_strategies.tls import TLS_FOLDER
from tf_strategies.types import JsonObject

__all__ = ["UcxEndpoint"]

_log = logging.getLogger("tf_strategies")


class UcxEndpoint:
    """An Endpoint that opens a worker of UCX.

    Args:
        settings: what this worker knows.
        transport: as in CommunicationOptions.
        net_devices: the value of UCX_NET_DEVICES.
    """

    def __init__(self, settings: Settings, transport: str, net_devices: str) -> None:
        self._settings, self._is_default = settings, transport == "auto"
        self._must_encrypt = settings.tls_folder != "" and transport != "shared_memory"
        self._worker, self._address, shares_memory = _open_worker(settings.name, transport, net_devices)
        self.memory = "ucx" if shares_memory else ""

    def address(self) -> JsonObject:
        return {"kind": "ucx", "address": encoded(self._address), "memory": self.memory}

    def connect(self, addresses: Sequence[JsonObject], same_host: Sequence[bool], epoch: int) -> int:
        del epoch
        require_equal("ucx", self._settings, addresses)
        if not all(same_host):
            self._refuse_or_warn()
        return core.transport_of_worker(
            self._worker,
            rank=self._settings.rank,
            addresses=[decoded(each) for each in addresses],
            same_host=list(same_host),
        )

    def _refuse_or_warn(self) -> None:
        name = self._settings.name
        if self._must_encrypt:
            raise BootstrapError(
                f"{name}: {TLS_FOLDER} is set, and UCX, which cannot encrypt, would connect the hosts; use "
                "CommunicationOptions(transport='auto') without UCX_TLS in the environment, or transport='tcp'"
            )
        if self._is_default:
            _log.warning(
                "%s: UCX_TLS=%s is set, so UCX connects the hosts, as with transport='ucx': whoever reaches its ports can write "
                "into this process; use it on a network that nobody else reaches, or unset UCX_TLS",
                name,
                os.environ.get("UCX_TLS", ""),
            )

    def close(self) -> None:
        core.close_worker(self._worker)


def _open_worker(name: str, transport: str, net_devices: str) -> tuple[int, bytes, bool]:
    """Opens a worker of UCX. Returns its id, its address, and whether it needs no network."""
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
