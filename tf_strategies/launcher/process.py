"""Runs one process in a session of its own.

It and its descendants are killed together, and when the launcher dies.
"""

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
    """Makes this process the parent of descendants whose parent has died, so that `kill_orphans` finds them."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_orphans() -> None:
    """Kills and reaps all children of this process, and the children that they leave behind."""
    while True:
        children = _children()
        for pid in children:  # another thread may reap its own
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        if not children:
            return


class LaunchedProcess:
    """Starts a command with pipes for stdout and stderr.

    Args:
        name: the name in messages, such as "worker 0".
        argv: the command.
        env: the whole environment of the process.
        stdin: as for `subprocess.Popen`.
    """

    def __init__(
        self, name: str, argv: Sequence[str], env: Mapping[str, str], *, stdin: int = subprocess.DEVNULL
    ) -> None:
        self.name = name
        self.started = time.monotonic()
        self.ended: float | None = None
        self.told_to_end = False  # the launcher ended it; its exit status is then not a failure
        self.unsent = b""  # what `send` has not written yet
        launcher = os.getpid()

        def die_with_launcher() -> None:
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != launcher:
                os._exit(1)

        self._popen = subprocess.Popen(
            list(argv),
            env=dict(env),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=die_with_launcher,
        )
        if self._popen.stdin is not None:
            os.set_blocking(self._popen.stdin.fileno(), False)

    @property
    def streams(self) -> tuple[IO[bytes], IO[bytes]]:
        """The pipes of stdout and stderr."""
        out, err = self._popen.stdout, self._popen.stderr
        if out is None or err is None:
            raise RuntimeError(f"{self.name} was started without pipes")
        return out, err

    @property
    def stdin(self) -> IO[bytes]:
        """The pipe of stdin, if it was asked for."""
        if self._popen.stdin is None:
            raise RuntimeError(f"{self.name} was started without a pipe for its input")
        return self._popen.stdin

    def send(self, data: bytes = b"") -> None:
        """Writes to stdin as much as its pipe takes now. `unsent` keeps the rest, for further calls."""
        self.unsent += data
        try:
            while self.unsent:
                self.unsent = self.unsent[os.write(self.stdin.fileno(), self.unsent) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self.unsent = b""  # the process has ended, as its exit status will say

    def read_all(self, seconds: float) -> tuple[bytes, bytes]:
        """Waits until the process has ended. Returns its stdout and its stderr.

        Raises:
            subprocess.TimeoutExpired: it takes longer than `seconds`.
        """
        found = self._popen.communicate(timeout=seconds)
        self.ended = time.monotonic()
        return found

    @property
    def running(self) -> bool:
        """Whether the process has not been reaped yet."""
        return self.ended is None

    @property
    def status(self) -> int:
        """The exit status as in a shell: 128 + the signal number if a signal ended the process."""
        code = self._popen.returncode
        return 128 - code if code < 0 else code

    def check_ended(self) -> bool:
        """Returns True if the process has ended since the last call.

        Its process group is then killed, and it is reaped.
        """
        if not self.running:
            return False
        if os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            return False
        # Descendants may still run. The process is not reaped yet, so no other can have its group number.
        self.signal(signal.SIGKILL)
        self._popen.wait()
        self.ended = time.monotonic()
        return True

    def signal(self, number: int) -> None:
        """Sends a signal to the process group, unless the process has been reaped."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, number)

    @property
    def seconds(self) -> float:
        """Returns the seconds that the process ran."""
        return (self.ended or self.started) - self.started

    def describe_end(self) -> str:
        """Returns a text such as "ended with status 1 after 3.2 s"."""
        code, seconds = self._popen.returncode, self.seconds
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
