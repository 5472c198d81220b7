"""The checkpoints in a folder, as they appear, in the order in which they were written."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, NamedTuple, Optional, Set, Tuple

__all__ = ["CheckpointFolder", "Found"]

_SUFFIXES = (".checkpoint", ".keras", ".h5", ".hdf5", ".index")


class Found(NamedTuple):
    """A checkpoint at a moment; written again it is another.

    Attributes:
        written: when, in nanoseconds, as the file system says.
        path: of the file; of a checkpoint in TensorFlow's format, that which ends in ".index".
        size: in bytes.
        inode: of the file, which one that takes its place does not share.
    """

    written: int
    path: Path
    size: int
    inode: int


class CheckpointFolder:
    """Follows a folder, which need not exist yet.

    Args:
        path: of the folder; those within it are left alone, and so are files whose names begin with a dot.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._done: Set[Found] = set()
        self._newest: Optional[Found] = None

    def newest(self) -> Optional[Found]:
        """Returns the one that was written last, unless it or a newer one is done."""
        since = 0 if self._newest is None else self._newest.written
        waiting = [found for found in self._all() if found.written >= since and found not in self._done]
        return max(waiting, default=None)

    def done_with(self, found: Found) -> None:
        """Notes that this checkpoint, and those before it, need no evaluation any more."""
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
    """Returns the status of a file; None for a folder, or a file that is gone."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if path.is_file() else None
