"""Writes the last collectives of a worker to a file, for `tfs-trace`."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
import tempfile
import threading
from pathlib import Path
from typing import Mapping

__all__ = ["FOLDER_VARIABLE", "FORMAT", "RecordWriter", "asked_for", "path_of", "write"]

FOLDER_VARIABLE = "TF_STRATEGIES_RECORDS"
FORMAT = 2
PATIENCE_SECONDS = 2.0

_log = logging.getLogger("tf_strategies")


def asked_for() -> bool:
    """Returns whether TF_STRATEGIES_RECORDS names a folder, so that each worker writes a file when it leaves its group."""
    return bool(os.environ.get(FOLDER_VARIABLE))


class RecordWriter:
    """Writes the records of a worker on threads, because a disk may take long. It is thread-safe.

    Args:
        task: "worker 1".
    """

    def __init__(self, task: str) -> None:
        self._task = task
        self._begun = self._written = 0
        self._last: threading.Thread | None = None
        self._numbering, self._writing = threading.Lock(), threading.Lock()

    def begin(self, epoch: int, content: Mapping[str, object]) -> Path | None:
        """Begins to write a record, which replaces earlier ones of the same group.

        Args:
            epoch: the number of the group.
            content: a JSON object.

        Returns:
            The path, or None if no thread can be started. Then, and if the file cannot be written, a warning says why.
        """
        path = path_of(self._task, epoch)
        with self._numbering:
            self._begun += 1
            number = self._begun
            thread = threading.Thread(target=self._write, args=(number, path, epoch, content), daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                _log.warning("the last collectives of %s could not be written: %s", self._task, error)
                return None
            self._last = thread
        return path

    def finish(self) -> None:
        """Waits for the record that was begun last, at most `PATIENCE_SECONDS`."""
        with self._numbering:
            last = self._last
        if last is not None:
            last.join(PATIENCE_SECONDS)

    def _write(self, number: int, path: Path, epoch: int, content: Mapping[str, object]) -> None:
        with self._writing:
            if number < self._written:
                return
            self._written = number
            try:
                write(path, {"format": FORMAT, "task": self._task, "epoch": epoch, **content})
            except Exception as error:
                _log.warning("the last collectives of %s could not be written: %s", self._task, error)


def path_of(task: str, epoch: int) -> Path:
    """Returns the path of a record.

    It is in the folder that TF_STRATEGIES_RECORDS names, by default one for this user in the system's folder for temporary
    files, and there in a folder for the group.

    Args:
        task: "worker 1".
        epoch: the number of the group.
    """
    folder = Path(os.environ[FOLDER_VARIABLE]) if asked_for() else _default_folder()
    return folder / f"{epoch:016x}" / f"{task.replace(' ', '-')}.json"


def write(path: Path, content: Mapping[str, object]) -> None:
    """Writes a JSON object to a file, whole or not at all.

    Args:
        path: from `path_of`.
        content: the object.

    Raises:
        OSError: the file cannot be written, or the default folder is not this user's.
    """
    if path.parents[1] == _default_folder():
        _require_private(path.parents[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(json.dumps(content))
        unfinished.replace(path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            unfinished.unlink()


def _default_folder() -> Path:
    return Path(tempfile.gettempdir(), f"tf_strategies-{os.getuid()}")


def _require_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{folder} is not a folder of this user; name another one in {FOLDER_VARIABLE}")
