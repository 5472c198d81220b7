"""Asks a command or a file again and again which hosts there are, so that workers can start on those that appear."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import threading
import time
from pathlib import Path
from types import TracebackType

from tf_strategies.launcher.host_lists import Slots, slots_of_lines
from tf_strategies.launcher.machines import Machine, Machines
from tf_strategies.launcher.supervisor import say

__all__ = ["HostWatch"]

_EVERY_SECONDS = 2.0
_DEADLINE_SECONDS = 10.0
_OPEN_SECONDS = 1.0  # how long the output may stay open after the end of the command
_POLL_SECONDS = 0.02
_MOST_BYTES = 1 << 20
_READ_BYTES = 1 << 16


class HostWatch:
    """Knows how many workers each machine may run now. It asks on a thread of its own, and is a context.

    If an answer fails, the last one stays, and one warning says so until an answer succeeds again.

    Args:
        source: a command that prints one host a line, "host" or "host:slots", or "@FILE" for a file with such lines.
        machines: knows which of the hosts can run workers.
        deadline: the seconds after which the command is killed.

    Raises:
        ValueError: the first answer fails.
    """

    def __init__(self, source: str, machines: Machines, deadline: float = _DEADLINE_SECONDS) -> None:
        self._path = Path(source[1:]) if source.startswith("@") else None
        self._argv = [] if self._path is not None else shlex.split(source)
        self._source, self._deadline = source, deadline
        if self._path is None and not self._argv:
            raise ValueError("--hosts-from is empty; write a command, or @FILE")
        self._warned = False
        self._machines = machines
        self._named = machines.begin(self._ask())
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tfs-run hosts", daemon=True)

    @property
    def places(self) -> dict[Machine, int]:
        """Returns how many workers each machine may run, from the last answer that has not failed."""
        return {machine: places for machine, places in self._named.items() if self._machines.usable(machine)}

    def __enter__(self) -> HostWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(_EVERY_SECONDS):
            try:
                self._named, self._warned = self._machines.places(self._ask()), False
            except (
                ValueError,
                OSError,
                RuntimeError,
            ) as error:  # the last one for a thread that cannot start
                if not self._warned and not self._stopped.is_set():
                    say(f"{error}; the hosts of before stay")
                self._warned = True

    def _ask(self) -> list[Slots]:
        try:
            text = self._path.read_text() if self._path is not None else self._output()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"--hosts-from {self._source}: {error}") from None
        return slots_of_lines(text.splitlines(), f"--hosts-from {self._source}")

    def _output(self) -> str:
        """Returns what the command prints. Whatever it has started in its session is killed.

        Processes of other sessions may keep its output open. Then whole lines are an answer, when the command has ended.
        """
        where = f"--hosts-from {self._source}"
        with subprocess.Popen(
            self._argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                said, closed, status = _read(process, self._deadline)
            except ChildProcessError:
                raise ValueError(f"{where}: it was killed") from None
            finally:
                _kill_session(process.pid)
        if len(said) >= _MOST_BYTES:
            raise ValueError(f"{where}: it prints more than {_MOST_BYTES} bytes")
        if status is None:
            raise ValueError(f"{where}: no answer within {self._deadline:g} s; it was killed")
        if status:
            raise ValueError(f"{where}: it ended with status {status}")
        if not closed and not said.endswith(b"\n"):
            raise ValueError(
                f"{where}: it ended without a whole line, and a process that it started keeps its output open"
            )
        return said.decode()


def _read(process: subprocess.Popen[bytes], seconds: float) -> tuple[bytes, bool, int | None]:
    """Reads what a process prints, until it has ended and its output is closed.

    It gives up after `seconds`, and soon after the end of the process if its output stays open.

    Returns:
        The output, whether it was closed, and the exit status (-N for signal N), which is None if the process still runs.

    Raises:
        ChildProcessError: the process has been reaped already, as by `kill_orphans`, so its status is unknown.
    """
    if process.stdout is None:
        raise RuntimeError("the command was started without a pipe")
    descriptor, end = process.stdout.fileno(), time.monotonic() + seconds
    os.set_blocking(descriptor, False)
    said, closed, status = b"", False, None
    while len(said) < _MOST_BYTES and (status is None or not closed) and time.monotonic() < end:
        data = b""
        with contextlib.suppress(BlockingIOError):
            data = os.read(descriptor, _READ_BYTES)
            closed = not data
        said += data
        if not data and status is None:
            status = _status(process.pid)
            if status is not None:
                end = min(end, time.monotonic() + _OPEN_SECONDS)
        if not data:
            time.sleep(_POLL_SECONDS)
    return said, closed, status


def _status(pid: int) -> int | None:
    """Returns the exit status of a process, which is not reaped; None while it runs."""
    end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if end is None:
        return None
    return end.si_status if end.si_code == os.CLD_EXITED else -end.si_status


def _kill_session(leader: int) -> None:
    """Kills the processes of a session, also those in other groups than its leader."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)
