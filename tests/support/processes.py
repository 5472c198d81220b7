"""Real processes for tests: one log file each, every wait bounded, nothing left behind.

Example:
    with ReservedPorts(3) as ports, ProcessGroup(tmp_path) as group:
        group.start_workers(ports.addresses, "tests.cluster.my_worker", "argument")
        group["worker1"].wait_for_text("step 5", timeout=60)
        group["worker1"].signal(signal.SIGKILL)
        assert group["worker0"].wait(timeout=10) == 1
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Callable, Iterator, Mapping, Sequence

from tests.support import preloaded
from tf_strategies.launcher.ports import ReservedPorts

__all__ = [
    "REPOSITORY",
    "Process",
    "ProcessGroup",
    "ReservedPorts",
    "consecutive_ports",
    "light_environment",
    "tf_config",
    "wait_until",
]

REPOSITORY = Path(__file__).resolve().parents[2]
_POLL_SECONDS = 0.02
_LOG_TAIL = 20_000


def tf_config(cluster: Mapping[str, Sequence[str]], role: str, index: int) -> str:
    """The text of TF_CONFIG for one task."""
    spec = {name: list(addresses) for name, addresses in cluster.items()}
    return json.dumps({"cluster": spec, "task": {"type": role, "index": index}})


def light_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This environment without TF_CONFIG, importing from here, on one thread and no GPU; plus `extra`."""
    env = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    path = [str(REPOSITORY)] + [part for part in env.get("PYTHONPATH", "").split(os.pathsep) if part]
    env.update(
        PYTHONPATH=os.pathsep.join(path),
        PYTHONUNBUFFERED="1",
        OMP_NUM_THREADS="1",
        TF_NUM_INTRAOP_THREADS="1",
        TF_NUM_INTEROP_THREADS="1",
        TF_CPP_MIN_LOG_LEVEL="2",
        CUDA_VISIBLE_DEVICES="",
    )
    env.update(extra or {})
    return env


def wait_until(condition: Callable[[], bool], timeout: float, what: str) -> float:
    """Waits until `condition()` is true (returns the seconds); fails after `timeout`, naming `what`."""
    start = time.monotonic()
    pause = threading.Event()
    while not condition():
        if time.monotonic() - start > timeout:
            raise AssertionError(f"waited {timeout:g} s in vain for {what}")
        pause.wait(_POLL_SECONDS)
    return time.monotonic() - start


class Process:
    """One started program; its output (stdout and stderr) goes to `log_path`."""

    def __init__(
        self, name: str, started: subprocess.Popen | preloaded.PreloadedProcess, log_path: Path
    ) -> None:
        self.name = name
        self.log_path = log_path
        self._popen = started

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """The exit status once ended (-N for signal N), else None."""
        return self._popen.poll()

    def log(self) -> str:
        """All output so far."""
        return self.log_path.read_text(errors="replace")

    def wait(self, timeout: float) -> int:
        """Waits for the end and returns the exit status (-N for signal N)."""
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} (pid {self.pid}) still runs after {timeout:g} s") from None

    def wait_for_text(self, pattern: str, timeout: float) -> re.Match[str]:
        """Waits until the output matches the regular expression; fails when the process ends without."""
        found: list[re.Match[str]] = []

        def matches() -> bool:
            ended = self.returncode is not None
            match = re.search(pattern, self.log(), re.MULTILINE)
            if match:
                found.append(match)
            elif ended:
                raise AssertionError(f"{self.name} ended with {self.returncode} and never wrote {pattern!r}")
            return bool(match)

        wait_until(matches, timeout, f"{pattern!r} in the output of {self.name}")
        return found[0]

    def signal(self, number: int) -> None:
        """Sends a signal to this process alone (not to its children); nothing when it has ended."""
        if self.returncode is None:
            with contextlib.suppress(
                ProcessLookupError
            ):  # reaped by the process that preloaded it, which has not said so yet
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kills the process and its whole process group and reaps it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.signal(signal.SIGKILL)  # it may not lead a group yet
        self._popen.wait(30)


class ProcessGroup:
    """Started processes by name. Leaving the block kills what still runs, and prints the logs on failure."""

    def __init__(self, log_dir: Path) -> None:
        self._log_dir = log_dir
        self._processes: dict[str, Process] = {}

    def start(
        self, name: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Process:
        """Starts a program; `env` is added to `light_environment()`. The log is `<log_dir>/<name>.log`."""
        log_path = self._new_log(name)
        with log_path.open("wb") as log:
            started = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(env),
                cwd=cwd or REPOSITORY,
                start_new_session=True,
            )
        return self._add(Process(name, started, log_path))

    def start_preloaded(
        self,
        name: str,
        module: str,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        namespace: str = "",
    ) -> Process:
        """Starts `python -m module arguments...` with TensorFlow imported: see tests/support/preloaded.py."""
        log_path, slot = self._new_log(name), len(self._processes)
        started = preloaded.start(
            slot, module, arguments, log_path, self._environment(env), REPOSITORY, namespace
        )
        return self._add(Process(name, started, log_path))

    def start_workers(
        self,
        addresses: Sequence[str],
        module: str,
        *arguments: str,
        only: Sequence[int] | None = None,
        fresh: bool = False,
        env: Callable[[int], Mapping[str, str]] = lambda index: {},
    ) -> list[Process]:
        """Starts a module, preloaded, as all workers of a cluster at these addresses, or `only` some: "worker0", ...

        Args:
            fresh: starts new interpreters instead: a GPU that an interpreter has seen cannot be used after a fork.
            env: returns what is added to the environment of a worker.

        Returns:
            Those that were started, in order.
        """
        started = []
        for index in range(len(addresses)) if only is None else only:
            name, given = (
                f"worker{index}",
                {"TF_CONFIG": tf_config({"worker": addresses}, "worker", index), **env(index)},
            )
            if fresh:
                started.append(self.start_python(name, "-m", module, *arguments, env=given))
            else:
                started.append(self.start_preloaded(name, module, *arguments, env=given))
        return started

    def _environment(self, extra: Mapping[str, str] | None) -> dict[str, str]:
        return light_environment({"TF_STRATEGIES_RECORDS": str(self._log_dir / "records"), **(extra or {})})

    def _new_log(self, name: str) -> Path:
        if name in self._processes:
            raise ValueError(f"a process named {name!r} was started before; use another name for its log")
        log_path = self._log_dir / f"{name}.log"
        log_path.touch()
        return log_path

    def _add(self, process: Process) -> Process:
        self._processes[process.name] = process
        return process

    def start_python(self, name: str, *argv: str, env: Mapping[str, str] | None = None) -> Process:
        """Starts this Python with the given arguments."""
        return self.start(name, [sys.executable, *argv], env=env)

    def __getitem__(self, name: str) -> Process:
        return self._processes[name]

    @property
    def pids(self) -> set[int]:
        """The ids of all that were started, each the leader of a session."""
        return {process.pid for process in self._processes.values()}

    def wait_all(self, timeout: float) -> dict[str, int]:
        """Waits for all, `timeout` seconds together; the exit status by name."""
        end = time.monotonic() + timeout
        return {
            name: process.wait(max(0.0, end - time.monotonic())) for name, process in self._processes.items()
        }

    def require_success(self, timeout: float) -> None:
        """All end with 0 within `timeout` seconds; when one does not, the others are waited for no longer."""

        def is_decided() -> bool:
            statuses = [process.returncode for process in self._processes.values()]
            return None not in statuses or any(statuses)

        wait_until(is_decided, timeout, "the end of all processes")
        failed = {name: each.returncode for name, each in self._processes.items() if each.returncode}
        assert not failed, f"exit statuses {failed}"

    def print_logs(self) -> None:
        for process in self._processes.values():
            status = "running" if process.returncode is None else f"exit status {process.returncode}"
            print(f"===== {process.name} (pid {process.pid}, {status}) =====\n{process.log()[-_LOG_TAIL:]}")

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.print_logs()
        for process in self._processes.values():
            process.kill()


@contextlib.contextmanager
def consecutive_ports(count: int) -> Iterator[int]:
    """Reserves free ports of 127.0.0.1 that follow one another, as `ReservedPorts` does, and yields the first one."""
    for _ in range(50):
        with contextlib.ExitStack() as held, contextlib.suppress(OSError, OverflowError):
            first = held.enter_context(ReservedPorts(1)).ports[0]
            for port in range(first + 1, first + count):
                following = held.enter_context(socket.socket())
                following.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                following.bind(("127.0.0.1", port))
            kept = held.pop_all()
            break
    else:
        raise AssertionError(f"{count} free ports that follow one another were not found")
    with kept:
        yield first
