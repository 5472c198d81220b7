"""One started process and its descendants: a session, killed as a whole, dead when the launcher dies."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import IO, Mapping, Sequence

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans() -> None:
    """Makes descendants whose parent has died children of this process, so that `kill_orphans` finds them."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_orphans() -> None:
    """Kills and reaps every child that this process has; bounded by how deep their own descendants go."""
    while True:
        children = _children()
        for pid in children:
            os.kill(pid, signal.SIGKILL)
        for pid in children:
            os.waitpid(pid, 0)
        if not children:
            return


class LaunchedProcess:
    """Starts a command; its stdout and stderr are pipes.

    Args:
        name: "worker 0".
        argv: the command.
        env: its whole environment.
    """

    def __init__(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.name = name
        self.started = time.monotonic()
        self.ended: float | None = None
        self.told_to_end = False  # by the launcher; its exit status is then no failure
        launcher = os.getpid()

        def die_with_launcher() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != launcher:
                os._exit(1)

        self._popen = subprocess.Popen(
            list(argv),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=die_with_launcher,
        )

    @property
    def streams(self) -> tuple[IO[bytes], IO[bytes]]:
        """stdout and stderr."""
        out, err = self._popen.stdout, self._popen.stderr
        if out is None or err is None:
            raise RuntimeError(f"{self.name} was started without pipes")
        return out, err

    @property
    def running(self) -> bool:
        """Whether it has not been reaped."""
        return self.ended is None

    @property
    def status(self) -> int:
        """The exit status as a shell gives it: 128 + the number when a signal ended it."""
        code = self._popen.returncode
        return 128 - code if code < 0 else code

    def check_ended(self) -> bool:
        """Returns True if it has ended since the last call; then its process group is killed and it is reaped."""
        if not self.running:
            return False
        if os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        self.signal(signal.SIGKILL)  # what it left behind; not yet reaped, so its group cannot be another's
        self._popen.wait()
        self.ended = time.monotonic()
        return True

    def signal(self, number: int) -> None:
        """Sends a signal to its process group while it is not reaped."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, number)

    def describe_end(self) -> str:
        """Returns how and when the process ended: "ended with status 1 after 3.2 s"."""
        code, seconds = self._popen.returncode, (self.ended or self.started) - self.started
        if code < 0:
            by = "ended by tfs-run with" if self.told_to_end else "killed by"
            return f"{by} {signal.Signals(-code).name} after {seconds:.1f} s"
        return f"ended with status {code} after {seconds:.1f} s"


def _children() -> list[int]:
    try:
        listing = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(pid) for pid in listing.split()]
