"""Finds new checkpoints in a folder, in the order in which they were written."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, NamedTuple, Optional, Set, Tuple

__all__ = ["CheckpointFolder", "Found"]

_SUFFIXES = (".checkpoint", ".keras", ".h5", ".hdf5", ".index")


class Found(NamedTuple):
    """One version of a checkpoint file. A file that is written again is another version.

    Attributes:
        written: the modification time in nanoseconds, as the file system reports it.
        path: the path of the file; for TensorFlow's format, the file that ends in ".index".
        size: in bytes.
        inode: the inode number of the file. A file that replaces it has another one.
    """

    written: int
    path: Path
    size: int
    inode: int


class CheckpointFolder:
    """Follows a folder, which need not exist yet.

    Args:
        path: the path of the folder. Subfolders, and files whose names begin with a dot, are ignored.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done: Set[Found] = set()
        self._newest: Optional[Found] = None

    def newest(self) -> Optional[Found]:
        """Returns the newest checkpoint, or None if it has been evaluated already."""
        since = 0 if self._newest is None else self._newest.written
        waiting = [found for found in self._all() if found.written >= since and found not in self._done]
        return max(waiting, default=None)

    def done_with(self, found: Found) -> None:
        """Marks this checkpoint and all older ones as evaluated."""
        self._done = {kept for kept in self._done if kept.written == found.written} | {found}
        self._newest = found

    def _all(self) -> Iterator[Found]:
        try:
            paths = [path for path in self._path.iterdir() if path.name.endswith(_SUFFIXES)]
        except FileNotFoundError:
            return
        for path in paths:
            status = _status(path)
            if status is not None and not path.name.startswith("."):
                yield Found(status[0], path, *status[1:])


def _status(path: Path) -> Optional[Tuple[int, int, int]]:
    """Returns the status of a file, or None if it is a folder or no longer exists."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if path.is_file() else None
