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

__all__ = ["FOLDER_VARIABLE", "FORMAT", "asked_for", "write", "write_soon"]

FOLDER_VARIABLE = "TF_STRATEGIES_RECORDS"
FORMAT = 1
PATIENCE_SECONDS = 2.0

_log = logging.getLogger("tf_strategies")


def asked_for() -> bool:
    """Returns whether TF_STRATEGIES_RECORDS names a folder, so that each worker writes a file when it leaves its group."""
    return bool(os.environ.get(FOLDER_VARIABLE))


def write_soon(task: str, epoch: int, content: Mapping[str, object]) -> Path | None:
    """Does the same as `write`, but waits no longer than `PATIENCE_SECONDS`, in case that the disk does not answer."""
    written: list[Path | None] = []
    thread = threading.Thread(target=lambda: written.append(write(task, epoch, content)), daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    return written[0] if written else None


def write(task: str, epoch: int, content: Mapping[str, object]) -> Path | None:
    """Writes a file, whole or not at all.

    The file is in the folder that TF_STRATEGIES_RECORDS names, by default one for this user in the system's folder for
    temporary files, and there in a folder for the group.

    Args:
        task: "worker 1".
        epoch: the number of the group.
        content: a JSON object.

    Returns:
        The path, or None if the file could not be written. Then a warning says why.
    """
    try:
        folder = _folder() / f"{epoch:016x}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{task.replace(' ', '-')}.json"
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            unfinished.write_text(json.dumps({"format": FORMAT, "task": task, "epoch": epoch, **content}))
            unfinished.replace(path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                unfinished.unlink()
    except OSError as error:
        _log.warning("the last collectives of %s could not be written: %s", task, error)
        return None
    return path


def _folder() -> Path:
    if asked_for():
        return Path(os.environ[FOLDER_VARIABLE])
    folder = Path(tempfile.gettempdir(), f"tf_strategies-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError(f"{folder} is not a folder of this user; name another one in {FOLDER_VARIABLE}")
    return folder
