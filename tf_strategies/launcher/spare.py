"""Keeps a process ready that has imported TensorFlow, so that a lost one starts again without the import."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import Mapping, Sequence

from tf_strategies.launcher.process import LaunchedProcess
from tf_strategies.restarted import RESTARTED

__all__ = ["Spare"]

_MODULE = "tf_strategies.spare_process"
# Those of one process; a spare gets them with its request. TensorFlow reads none of them while it is imported.
_OWN_VARIABLES = ("TF_CONFIG", "CUDA_VISIBLE_DEVICES", RESTARTED)
# An import takes a core for some seconds, which the processes need to start.
_QUIET_SECONDS = 10.0
_END_SECONDS = 5.0


class Spare:
    """Holds one process at a time that waits to become another.

    Args:
        command: the interpreter, and the script or module with its arguments, that each process runs.
        environ: the environment of one of the processes. The others differ in `TF_CONFIG` and GPUs alone.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._command = tuple(command)
        self._environ = {name: value for name, value in environ.items() if name not in _OWN_VARIABLES}
        self._process: LaunchedProcess | None = None
        self._due: float | None = time.monotonic() + _QUIET_SECONDS

    @property
    def due(self) -> float | None:
        """When to call `tend` next, in seconds of `time.monotonic`; None if there is nothing to do."""
        return self._due

    def tend(self) -> str:
        """Starts the process when it is time. Returns what is to be said: why there is none any more, or ""."""
        if self._process is not None and self._process.check_ended():
            end, self._due = self._process.describe_end(), None
            errors = self._process.read_all(_END_SECONDS)[1].decode(errors="replace").strip()
            self._process = None
            return f"the spare process {end}, and there will be no other: {errors[-500:]}"
        if self._due is not None and time.monotonic() >= self._due:
            interpreter, *rest = self._command
            command = [interpreter, "-m", _MODULE, *rest]
            self._process = LaunchedProcess("spare", command, self._environ, stdin=subprocess.PIPE)
            self._due = None
        return ""

    def take(self, name: str, environ: Mapping[str, str]) -> LaunchedProcess:
        """Returns a process that runs the command: the one that waits, or a new one if none does.

        Args:
            name: its name in messages.
            environ: its whole environment.
        """
        process, self._process = self._process, None
        if process is None or process.check_ended():
            return LaunchedProcess(name, self._command, environ)
        self._due = time.monotonic() + _QUIET_SECONDS
        process.name, process.started = name, time.monotonic()
        process.send(json.dumps(dict(environ)).encode() + b"\n")
        return process

    def end(self) -> None:
        """Ends the process that waits, if there is one."""
        if self._process is not None:
            self._process.signal(signal.SIGKILL)
            self._process.read_all(_END_SECONDS)
            self._process = None
        self._due = None
