"""Holds the votes of an arbiter, and the file that keeps them. No sockets, no threads."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import IO, Iterable, NamedTuple

from tf_strategies.types import Json

__all__ = ["Vote", "Votes"]

_MOST_NAMED = 5


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
        named = ", ".join(self.names[:_MOST_NAMED])
        return f"{named} and {more} more" if more > 0 else named


class Votes:
    """Remembers which halves of groups may go on.

    Two halves of a group may both go on if they share a rank: a process is in one group at a time, so only one of them can form.

    Args:
        file: keeps the votes, so that an arbiter that starts again knows them. None keeps them in memory alone.

    Raises:
        ValueError: the file has something else than votes, or another process holds it.
        OSError: the file cannot be read or written.
    """

    def __init__(self, file: Path | None = None) -> None:
        self._by_group: dict[int, list[Vote]] = {}
        self._file: IO[bytes] | None = None
        if file is not None:
            self._file = _held(file)
            for vote in _read(self._file, file):
                self._by_group.setdefault(vote.group, []).append(vote)

    def objection(self, asked: Vote) -> str:
        """Returns why this half may not go on, or "" if it may. The vote for it is then kept.

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
            self._write(asked)
            self._by_group.setdefault(asked.group, []).append(asked)
        return ""

    def _write(self, vote: Vote) -> None:
        if self._file is None:
            return
        end = self._file.seek(0, os.SEEK_END)
        line: Json = {"group": vote.group, "ranks": sorted(vote.ranks), "names": list(vote.names)}
        data = json.dumps(line).encode() + b"\n"
        try:
            if self._file.write(data) < len(data):
                raise OSError("the disk is full")
            os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(end)
            raise

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()

    def __enter__(self) -> Votes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _held(file: Path) -> IO[bytes]:
    """Opens the file for this process alone."""
    opened = file.open("a+b", buffering=0)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        opened.close()
        raise ValueError(f"another arbiter uses {file}; end it, or name another file") from None
    return opened


def _read(opened: IO[bytes], file: Path) -> Iterable[Vote]:
    """Reads the votes. A last line without an end was cut off while it was written, and was never told to anybody."""
    opened.seek(0)
    *lines, cut_off = opened.read().split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            found = json.loads(line)
            yield Vote(
                int(found["group"]), frozenset(map(int, found["ranks"])), tuple(map(str, found["names"]))
            )
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"line {number} of {file} is not a vote; name another file") from None
    if cut_off:
        opened.truncate(opened.tell() - len(cut_off))
