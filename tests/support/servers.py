"""Parameter servers and their workers as real processes.

Example:
    with ServerCluster(tmp_path, "tests.cluster.my_worker", servers=2, workers=3) as cluster:
        cluster.start("argument")
        cluster.require_good_end(timeout=120)
"""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from types import TracebackType

from tests.support.leftovers import nothing_left
from tests.support.processes import Process, ProcessGroup, ReservedPorts, tf_config, wait_until

__all__ = ["ServerCluster", "wait_for_all", "wait_for_one"]


class ServerCluster:
    """The tasks of one TF_CONFIG that run the same module. Leaving the block ends them, and nothing may be left.

    Args:
        folder: for the logs.
        module: what every task runs.
        servers, workers: how many.
        chief, evaluator: whether there are, beside them.
    """

    def __init__(
        self,
        folder: Path,
        module: str,
        *,
        servers: int,
        workers: int,
        chief: bool = False,
        evaluator: bool = False,
    ) -> None:
        self._module = module
        self._stack = contextlib.ExitStack()
        counts = {"ps": servers, "worker": workers, "chief": int(chief), "evaluator": int(evaluator)}
        self._counts = {role: count for role, count in counts.items() if count}
        self._ports = ReservedPorts(sum(counts.values()))
        self._folder = folder
        self._servers = servers

    def __enter__(self) -> ServerCluster:
        self._stack.enter_context(self._ports)
        self.group = self._stack.enter_context(ProcessGroup(self._folder))
        self._stack.enter_context(nothing_left(self.group, self._ports.ports))
        addresses = iter(self._ports.addresses)
        self.addresses = {
            role: list(itertools.islice(addresses, count)) for role, count in self._counts.items()
        }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def __getitem__(self, name: str) -> Process:
        """The process "ps0", "worker2", ..."""
        return self.group[name]

    def name_of(self, role: str, index: int) -> str:
        """How messages name a task."""
        return f"{role} {index} ({self.addresses[role][index]})"

    def start(self, *arguments: str) -> None:
        """Starts every task."""
        for role, addresses in self.addresses.items():
            for index in range(len(addresses)):
                self.start_one(role, index, *arguments)

    def start_one(self, role: str, index: int, *arguments: str, again: str = "") -> Process:
        """Starts one task; `again` is added to the name of one that was started before."""
        return self.group.start_preloaded(
            f"{role}{index}{again}",
            self._module,
            *arguments,
            env={"TF_CONFIG": tf_config(self.addresses, role, index)},
        )

    def require_good_end(self, timeout: float) -> list[str]:
        """All tasks end with 0, and the servers say that all workers have finished; returns the workers' logs."""
        self.group.require_success(timeout)
        for index in range(self._servers):
            self.require_served(index)
        return [self.group[f"worker{index}"].log() for index in range(self._counts["worker"])]

    def require_served(self, index: int) -> None:
        log = self.group[f"ps{index}"].log()
        training = self._counts["worker"] + self._counts.get("chief", 0)
        assert f"{self.name_of('ps', index)} serves {training} workers" in log, log
        assert f"{self.name_of('ps', index)} ends: all workers have finished" in log, log


def wait_for_all(
    folder: Path, name: str, rank: int, size: int, text: str = "", timeout: float = 60.0
) -> list[str]:
    """In a worker: waits until all workers have come to the point of this name; returns what each brought, by rank."""
    part = folder / f"{name}.{rank}.part"
    part.write_text(text)
    part.rename(folder / f"{name}.{rank}")
    return [wait_for_one(folder, name, each, timeout) for each in range(size)]


def wait_for_one(folder: Path, name: str, rank: int, timeout: float = 60.0) -> str:
    """In a worker: waits until another has come to the point of this name; returns what it brought."""
    path = folder / f"{name}.{rank}"
    wait_until(path.exists, timeout, f"worker {rank} at {name!r}")
    return path.read_text()
