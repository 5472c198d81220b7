"""Keeps the files of one `tfs.launch`: the function for its processes, and what they leave for the caller.

All are in the encoding of `tf_strategies.objects`, in a folder that only this user can enter. Nothing in them is run when they
are read, except for the function, which the caller has written for its own processes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterable, NamedTuple

from tf_strategies.objects import decode, encode
from tf_strategies.types import Sendable

__all__ = ["CallFolder", "Report", "TaskError"]

_CALL = "call"
_REPORT = "report"


class TaskError(NamedTuple):
    """An exception that has ended a process.

    Attributes:
        when: seconds on the monotonic clock, which all processes of a machine share.
        summary: the type and text of the exception, on one line.
        traceback: its traceback, as Python prints it; "" if the function has not raised it.
    """

    when: float
    summary: str
    traceback: str


class Report(NamedTuple):
    """Says how the processes have ended.

    Attributes:
        failed: the name of the process that failed first; None if none has.
        ends: for each process a text such as "ended with status 0 after 3.2 s".
    """

    failed: str | None
    ends: dict[str, str]


class CallFolder:
    """Reads and writes the files. Each is complete as soon as it has its name.

    Args:
        path: an existing folder of mode 0700.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def write_call(self, call: Sendable) -> None:
        """Writes what all processes read."""
        self._write(_CALL, call)

    def read_call(self) -> Sendable:
        """Returns what `write_call` has written."""
        return self._read(_CALL)

    def write_result(self, task: str, value: Sendable) -> None:
        """Writes what the function has returned in a process.

        Raises:
            TypeError: the value cannot be encoded. The message names the type.
        """
        self._write(f"{task}.result", value)

    def read_result(self, task: str) -> Sendable:
        """Returns the value of a process.

        Raises:
            FileNotFoundError: the process has written none.
        """
        return self._read(f"{task}.result")

    def write_error(self, task: str, error: TaskError) -> None:
        """Writes the exception that ends a process."""
        self._write(f"{task}.error", tuple(error))

    def errors(self, tasks: Iterable[str]) -> dict[str, TaskError]:
        """Returns the exceptions of those processes that have written one."""
        return {
            task: TaskError(*self._read(f"{task}.error"))
            for task in tasks
            if (self._path / f"{task}.error").exists()
        }

    def write_report(self, failed: str | None, ends: dict[str, str]) -> None:
        """Writes how the processes have ended, when all have."""
        self._write(_REPORT, (failed, ends))

    def read_report(self) -> Report | None:
        """Returns how the processes have ended; None if the launcher has written nothing."""
        return Report(*self._read(_REPORT)) if (self._path / _REPORT).exists() else None

    def _write(self, name: str, value: Sendable) -> None:
        data = encode(value)
        path = self._path / f"{name}.new"
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        path.rename(self._path / name)

    def _read(self, name: str) -> Sendable:
        return decode((self._path / name).read_bytes())
