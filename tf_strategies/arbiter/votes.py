"""Holds the votes of an arbiter, and the file that keeps them. No sockets, no threads."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import IO, Iterator, NamedTuple

from tf_strategies.types import Json

__all__ = ["Vote", "Votes"]

_MOST_NAMED = 5
_MOST_CHARACTERS = 120  # of a name in messages


class Vote(NamedTuple):
    """Describes half of a group that may go on.

    Attributes:
        group: the number of the group.
        ranks: the ranks of this half in the group.
        names: the names of these workers, for messages.
    """

    group: int
    ranks: frozenset[int]
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        more = len(self.names) - _MOST_NAMED
        named = ", ".join(map(_printable, self.names[:_MOST_NAMED]))
        return f"{named} and {more} more" if more > 0 else named


class Votes:
    """Remembers which halves of groups have a vote.

    Several halves of a group can have one, if each two of them share a rank. Only one of them can form the next group then,
    because a process is in one group at a time.

    Args:
        file: keeps the votes, so that an arbiter that starts again knows them. None keeps them in memory alone.

    Attributes:
        count: the number of votes.

    Raises:
        ValueError: the file has something else than votes, or another process holds it.
        OSError: the file cannot be read or written.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._by_group: dict[int, list[Vote]] = {}
        self.count = 0
        self._file = None if file is None else _VotesFile(file)
        for vote in () if self._file is None else self._file.read():
            self._keep(vote)

    def objection(self, asked: Vote) -> str:
        """Returns why this half does not get a vote, or "" if it has one now.

        Args:
            asked: the half of a group.

        Raises:
            OSError: the vote could not be written. It does not count.
        """
        given = self._by_group.get(asked.group, [])
        for other in given:
            if not asked.ranks & other.ranks:
                return f"the other half goes on, {other}; start this worker again, so that it joins them"
        if all(asked.ranks != other.ranks for other in given):
            if self._file is not None:
                self._file.append(asked)
            self._keep(asked)
        return ""

    def _keep(self, vote: Vote) -> None:
        self._by_group.setdefault(vote.group, []).append(vote)
        self.count += 1

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()


class _VotesFile:
    """A file with a vote in each line. No other process can open it meanwhile."""

    def __init__(self, path: Path) -> None:
        self._path = path
        is_new = not path.exists()
        self._opened: IO[bytes] = path.open("a+b", buffering=0)
        self._is_damaged = False
        try:
            fcntl.flock(self._opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.close()
            raise ValueError(f"another arbiter uses {path}; end it, or name another file") from None
        if is_new:
            _write_through(path.parent)

    def read(self) -> Iterator[Vote]:
        """Reads the votes. A last line without an end was cut off while it was written, and was never told to anybody."""
        self._opened.seek(0)
        *lines, cut_off = self._opened.read().split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                found = json.loads(line)
                ranks, names = frozenset(map(int, found["ranks"])), tuple(map(str, found["names"]))
                yield Vote(int(found["group"]), ranks, names)
            except (ValueError, KeyError, TypeError):
                raise ValueError(
                    f"line {number} of {self._path} is not a vote; if this is the file of an arbiter, correct the line: a new "
                    "file forgets all votes"
                ) from None
        if cut_off:
            self._opened.truncate(self._opened.tell() - len(cut_off))

    def append(self, vote: Vote) -> None:
        """Writes a vote to the disk.

        Raises:
            OSError: it could not be written, or the file has been removed.
        """
        if self._is_damaged or not self._is_in_place():
            raise OSError(f"{self._path} has been damaged, moved or removed")
        line: Json = {"group": vote.group, "ranks": sorted(vote.ranks), "names": list(vote.names)}
        data = json.dumps(line).encode() + b"\n"
        end = self._opened.seek(0, os.SEEK_END)
        try:
            if self._opened.write(data) < len(data):
                raise OSError(f"the disk of {self._path} is full")
            os.fsync(self._opened.fileno())
        except OSError:
            self._is_damaged = True
            self._opened.truncate(end)
            self._is_damaged = False
            raise

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._opened.fileno()))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        self._opened.close()


def _write_through(folder: Path) -> None:
    """Writes the entries of a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _printable(name: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in name[:_MOST_CHARACTERS])
