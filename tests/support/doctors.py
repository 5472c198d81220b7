"""Starts tfs-doctor as the tasks of a cluster, and reads what the one that leads has found.

Example:
    with Doctors(tmp_path, ["127.0.0.1:4001", "127.0.0.1:4002"]) as doctors:
        doctors.start(0)
        doctors.start(1)
        assert doctors.finish().errors == {}
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Mapping, Sequence

from tests.support.processes import Process, ProcessGroup, tf_config
from tf_strategies.secret import SECRET_FILE, new_secret

__all__ = ["Doctors", "Found"]

_SECONDS = 60.0


class Found:
    """What the tasks have found.

    Attributes:
        statuses: the exit status of each task that was started.
        text: what the leading task has printed.
        findings: each as JSON.
        content: all that the leading task has written as JSON.
    """

    def __init__(self, statuses: dict[str, int], text: str, content: dict[str, Any]) -> None:
        self.statuses, self.text, self.content = statuses, text, content
        self.findings: list[dict[str, str]] = content["findings"]

    def of(self, severity: str) -> dict[str, dict[str, str]]:
        """Returns the findings of a severity, by code."""
        return {each["code"]: each for each in self.findings if each["severity"] == severity}

    @property
    def errors(self) -> dict[str, dict[str, str]]:
        return self.of("error")

    @property
    def warnings(self) -> dict[str, dict[str, str]]:
        return self.of("warning")


class Doctors:
    """The tasks of a cluster, which all have one secret. Leaving the block ends them.

    Args:
        folder: for logs and files.
        addresses: of the workers.
        servers: addresses of parameter servers.
        wait: the option --wait.
    """

    def __init__(
        self, folder: Path, addresses: Sequence[str], *, servers: Sequence[str] = (), wait: float = 8.0
    ) -> None:
        self.cluster = {"worker": list(addresses), **({"ps": list(servers)} if servers else {})}
        self.folder, self._wait = folder, wait
        self.secret = folder / "secret"
        write_secret(self.secret)
        self.group = ProcessGroup(folder)

    def start(
        self,
        index: int,
        *,
        role: str = "worker",
        inside: Sequence[str] = (),
        python: str = sys.executable,
        name: str = "",
        env: Mapping[str, str] | None = None,
        cluster: Mapping[str, Sequence[str]] | None = None,
        arguments: Sequence[str] = ("--without-library",),
        cwd: Path | None = None,
    ) -> Process:
        """Starts a task.

        Args:
            index, role: of the task.
            inside: a command that runs the command that follows.
            python: the interpreter.
            name: of its log and file; by default that of the task.
            env: further variables.
            cluster: of its TF_CONFIG, if it has another.
            arguments: of tfs-doctor, besides --wait and --json.
        """
        name = name or f"{role}{index}"
        command = [python, "-m", "tf_strategies.doctor", "--wait", str(self._wait)]
        environ = {
            "TF_CONFIG": tf_config(cluster or self.cluster, role, index),
            SECRET_FILE: str(self.secret),
            **(env or {}),
        }
        json_file = ["--json", str(self.folder / f"{name}.json")]
        return self.group.start(name, [*inside, *command, *json_file, *arguments], env=environ, cwd=cwd)

    def start_all(self, **more: Any) -> None:
        """Starts all workers alike."""
        for index in range(len(self.cluster["worker"])):
            self.start(index, **more)

    def finish(self, leader: str = "worker0", timeout: float = _SECONDS) -> Found:
        """Waits for all tasks. Returns what a leading task has found."""
        statuses = self.group.wait_all(timeout)
        path = self.folder / f"{leader}.json"
        assert path.exists(), f"{leader} has not led: {statuses}"
        return Found(statuses, self.group[leader].log(), json.loads(path.read_text()))

    def __enter__(self) -> Doctors:
        self.group.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.group.__exit__(kind, error, trace)


def write_secret(path: Path) -> None:
    """Writes a new secret to a file that only this user can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(new_secret() + "\n")
