"""The contestants of benchmarks.allreduce: how their processes are started, and which of them this environment has.

All get float32 data, one thread a process for computing, huge pages (as with tfs-run), and no binding to cores.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Callable, Sequence

from benchmarks.contest import Command
from tf_strategies.launcher.environment import HUGE_PAGES

__all__ = ["ALGORITHMS", "CONTESTANTS", "CORE_PROGRAM", "WIRES", "Contestant"]

WIRES = ("shared_memory", "tcp")
ALGORITHMS = ("ring", "recursive_doubling", "halving_doubling", "binary_blocks")
CORE_PROGRAM = Path(__file__).resolve().parents[1] / ".build" / "core" / "bin" / "allreduce_bench"

_MAKE_PEERS = "`make bench-peers` and run this with .venv/peers/bin/python"
_THREADS = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
_ENVIRONMENT = {
    **_THREADS,
    **HUGE_PAGES,
    "CUDA_VISIBLE_DEVICES": "",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "PYTHONUNBUFFERED": "1",
}
_MPIRUN = Path(sys.executable).with_name("mpirun")
_MPI_SETTINGS = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none")
_MPI_WIRES = {
    "shared_memory": ("--mca", "pml", "ob1", "--mca", "btl", "sm,self"),
    "tcp": ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"),
}
# The ring, which Open MPI's own rules take for other sizes and numbers of ranks than ours.
_MPI_RING = ("--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", "4")


@dataclasses.dataclass(frozen=True)
class Contestant:
    """One implementation.

    Attributes:
        title: for the heads of tables.
        missing: why it cannot take part here, with the remedy; "" when it can.
        commands: given wire, number of ranks, folder and the ranks' addresses, the processes to start.
        stops: whether its processes are stopped between their turns.
    """

    title: str
    missing: Callable[[], str]
    commands: Callable[[str, int, Path, Sequence[str]], list[Command]]
    stops: bool = False


def _core(*options: str) -> Callable[[str, int, Path, Sequence[str]], list[Command]]:
    def commands(wire: str, ranks: int, folder: Path, addresses: Sequence[str]) -> list[Command]:
        wires = ("--own-tcp",) if wire == "tcp" else ()
        argv = [str(CORE_PROGRAM), "--serve", str(folder), "--ranks", str(ranks), *wires, *options]
        return [Command(argv, _ENVIRONMENT)]

    return commands


def _python(module: str, implementation: str) -> Callable[[str, int, Path, Sequence[str]], list[Command]]:
    """A process of this interpreter for each rank, with its TF_CONFIG."""

    def commands(wire: str, ranks: int, folder: Path, addresses: Sequence[str]) -> list[Command]:
        argv = [sys.executable, "-m", module, implementation, "--folder", str(folder), "--ranks", str(ranks)]
        if implementation == "ours" and wire == "tcp":
            argv += ["--transport", "tcp"]
        return [
            Command([*argv, "--rank", str(rank)], {**_ENVIRONMENT, "TF_CONFIG": _tf_config(addresses, rank)})
            for rank in range(ranks)
        ]

    return commands


def _tf_config(addresses: Sequence[str], rank: int) -> str:
    return json.dumps({"cluster": {"worker": list(addresses)}, "task": {"type": "worker", "index": rank}})


def _mpi(*settings: str) -> Callable[[str, int, Path, Sequence[str]], list[Command]]:
    def commands(wire: str, ranks: int, folder: Path, addresses: Sequence[str]) -> list[Command]:
        yields = ("--mca", "mpi_yield_when_idle", "1") if ranks > (os.cpu_count() or 1) else ()
        argv = [str(_MPIRUN), *_MPI_SETTINGS, "-n", str(ranks), *_MPI_WIRES[wire], *yields, *settings]
        argv += [sys.executable, "-m", "benchmarks.allreduce_peers", "mpi", "--folder", str(folder)]
        return [Command(argv, _ENVIRONMENT)]

    return commands


def _without_core() -> str:
    return "" if CORE_PROGRAM.exists() else f"{CORE_PROGRAM} is not built: `make tools`"


def _without(module: str, remedy: str) -> Callable[[], str]:
    def missing() -> str:
        return "" if importlib.util.find_spec(module) else f"{sys.executable} has no {module}: {remedy}"

    return missing


def _without_mpi() -> str:
    if not _MPIRUN.exists():
        return f"there is no {_MPIRUN}: {_MAKE_PEERS}"
    return _without("mpi4py", _MAKE_PEERS)()


_TENSORFLOW = _without("tensorflow", "`make setup` and run this with .venv/tf-newest/bin/python")

# `copy` only copies what a rank must move, in its own memory: the limit of shared memory. It takes part wherever the core does.
CONTESTANTS: dict[str, Contestant] = {
    "core": Contestant("core", _without_core, _core("--algorithm", "auto")),
    "core_again": Contestant("core, again", _without_core, _core("--algorithm", "auto")),
    **{
        f"core_{name}": Contestant(f"core, {name}", _without_core, _core("--algorithm", name))
        for name in ALGORITHMS
    },
    "op": Contestant("op", _TENSORFLOW, _python("benchmarks.allreduce_worker", "ours")),
    "ring": Contestant("TF RING", _TENSORFLOW, _python("benchmarks.allreduce_worker", "ring")),
    "horovod": Contestant(
        "Horovod",
        _without("horovod", _MAKE_PEERS),
        _python("benchmarks.allreduce_worker", "horovod"),
        stops=True,
    ),
    "gloo": Contestant("Gloo", _without("torch", _MAKE_PEERS), _python("benchmarks.allreduce_peers", "gloo")),
    "openmpi": Contestant("Open MPI", _without_mpi, _mpi()),
    "openmpi_ring": Contestant("Open MPI, ring", _without_mpi, _mpi(*_MPI_RING)),
    "copy": Contestant("copy", _without_core, _core("--copy")),
}
