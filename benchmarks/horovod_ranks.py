"""Horovod's ranks without its launcher: they find one another through a rendezvous that rank 0 opens."""

from __future__ import annotations

import os
import time
from pathlib import Path

_START_SECONDS = 120
# The ranks are stopped between their turns, and Gloo counts that time.
_GLOO_SECONDS = 24 * 3600


def join(folder: Path, rank: int, ranks: int) -> None:
    """Sets the environment from which `hvd.init()` makes this process a rank, all on this machine, over Gloo.

    Args:
        folder: shared by the ranks, in which the port of the rendezvous is told.
        rank: of this process.
        ranks: how many there are.
    """
    port = _open_rendezvous(folder, ranks) if rank == 0 else _wait_for_port(folder)
    places = {
        "RANK": rank,
        "SIZE": ranks,
        "LOCAL_RANK": rank,
        "LOCAL_SIZE": ranks,
        "CROSS_RANK": 0,
        "CROSS_SIZE": 1,
    }
    gloo = {
        "IFACE": "lo",
        "RENDEZVOUS_ADDR": "127.0.0.1",
        "RENDEZVOUS_PORT": port,
        "TIMEOUT_SECONDS": _GLOO_SECONDS,
    }
    os.environ.update({f"HOROVOD_{name}": str(value) for name, value in places.items()})
    os.environ.update({f"HOROVOD_GLOO_{name}": str(value) for name, value in gloo.items()})
    os.environ.update(HOROVOD_CONTROLLER="gloo", HOROVOD_CPU_OPERATIONS="gloo", HOROVOD_HOSTNAME="localhost")


def _open_rendezvous(folder: Path, ranks: int) -> int:
    from horovod.runner.common.util import hosts
    from horovod.runner.http.http_server import RendezvousServer

    server = RendezvousServer(verbose=0)
    port = server.start()
    server.init(hosts.get_host_assignments(hosts.parse_hosts(f"localhost:{ranks}"), ranks))
    written = folder / "rendezvous.new"
    written.write_text(str(port))
    written.rename(folder / "rendezvous")
    return port


def _wait_for_port(folder: Path) -> int:
    end = time.monotonic() + _START_SECONDS
    while not (folder / "rendezvous").exists():
        if time.monotonic() > end:
            raise SystemExit(f"rank 0 opened no rendezvous within {_START_SECONDS} s")
        time.sleep(0.05)
    return int((folder / "rendezvous").read_text())
