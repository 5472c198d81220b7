"""Starts workers of the control plane, and reads what they print."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.processes import Process, ProcessGroup, tf_config

__all__ = ["JOIN_SECONDS", "Group", "abort_of", "joined", "refusal_of"]

SCRIPT = str(Path(__file__).with_name("control_plane_worker.py"))
JOIN_SECONDS = 20


class Group:
    """Control-plane workers on reserved ports."""

    def __init__(self, processes: ProcessGroup, addresses: tuple[str, ...]) -> None:
        self.processes, self.addresses = processes, addresses

    @property
    def size(self) -> int:
        return len(self.addresses)

    def name(self, rank: int) -> str:
        return f"worker {rank} ({self.addresses[rank]})"

    def start(
        self, rank: int, *actions: list, label: str | None = None, config: str | None = None, **plan
    ) -> Process:
        config = config or tf_config({"worker": self.addresses}, "worker", rank)
        text = json.dumps({"actions": actions, **plan})
        name = label or f"worker{rank}"
        return self.processes.start_python(name, SCRIPT, text, env={"TF_CONFIG": config})

    def start_all(self, *actions: list, **plan) -> list[Process]:
        return [self.start(rank, *actions, **plan) for rank in range(self.size)]


def joined(workers: list[Process]) -> set[str]:
    return {worker.wait_for_text(r"^JOINED (\d+)", JOIN_SECONDS).group(1) for worker in workers}


def abort_of(worker: Process, timeout: float = 10) -> tuple[float, int, str]:
    found = worker.wait_for_text(r"^ABORT (\S+) (\d+) (.*)$", timeout)
    return float(found.group(1)), int(found.group(2)), found.group(3)


def refusal_of(worker: Process, timeout: float = JOIN_SECONDS) -> str:
    assert worker.wait(timeout) == 4
    return worker.wait_for_text(r"^REFUSED (.*)$", 1).group(1)
