"""Sends the output of each process to the terminal, to a log file of its own, or both."""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
import sys
import time
from pathlib import Path
from typing import Sequence

from tf_strategies.launcher.output import LineWriter, Sink, prefixes, wants_colour, write_line
from tf_strategies.launcher.supervisor import say

_TAIL_LINES = 30


@dataclasses.dataclass(frozen=True)
class OutputOptions:
    """Says where the output of the processes goes.

    Attributes:
        log_dir: a folder with one file for each process, such as `worker-0.log`. None writes no files.
        shown: the names of the processes whose lines are shown, such as "worker 0". None shows all.
        names: the names of the processes of all hosts, which decide the width and the colour of prefixes.
        colour: whether prefixes are coloured. None looks whether the output goes to a terminal.
    """

    log_dir: Path | None
    shown: frozenset[str] | None
    names: tuple[str, ...]
    colour: bool | None = None


class TaskOutputs:
    """Makes the writers of the output of all processes, and owns the log files.

    Lines of a process that are neither shown nor logged are kept, the last ones, for `describe`.

    Args:
        processes: the names of the processes. Others may follow.
        options: where the output goes. Log files are appended to.

    Raises:
        OSError: a log file cannot be opened.
    """

    def __init__(self, processes: Sequence[str], options: OutputOptions) -> None:
        self._options = options
        self._logs: list[int] = []
        self._tails: dict[str, collections.deque[bytes]] = {}
        self._writers: dict[str, list[LineWriter]] = {}
        for name in processes:
            self._writers[name] = self._made(name, self._kept(name))

    def writers(self, name: str) -> list[LineWriter]:
        """Returns the writers of a process, for its stdout and its stderr."""
        if name not in self._writers:
            kept: list[Sink] = []
            try:
                kept = self._kept(name)
            except OSError as error:
                say(f"{name} has no log file: {error}; make room in --log-dir, and start tfs-run again")
            self._writers[name] = self._made(name, kept)
        return self._writers[name]

    def _made(self, name: str, kept: Sequence[Sink]) -> list[LineWriter]:
        shown = self._options.shown is None or name in self._options.shown
        names = list(dict.fromkeys([*self._options.names, name]))
        writers = []
        for target in (sys.stdout.fileno(), sys.stderr.fileno()):
            colour = wants_colour(target) if self._options.colour is None else self._options.colour
            text = prefixes(names, colour)[names.index(name)]
            sinks = [functools.partial(write_line, target, text)] if shown else []
            writers.append(LineWriter(*kept, *sinks))
        return writers

    def describe(self, name: str) -> list[str]:
        """Returns the last lines of a process that is neither shown nor logged, or the path of its log file."""
        hidden = [f"{name} wrote: {line.decode(errors='replace')}" for line in self._tails.get(name, ())]
        path = self.log_path(name)
        return hidden if path is None else [f"the output of {name} is in {path}"]

    def log_path(self, name: str) -> Path | None:
        """Returns the path of the log file of a process, or None without `log_dir`."""
        folder = self._options.log_dir
        return None if folder is None else folder / f"{name.replace(' ', '-')}.log"

    def close(self) -> None:
        """Closes the log files."""
        while self._logs:
            os.close(self._logs.pop())

    def _kept(self, name: str) -> list[Sink]:
        """Returns where the lines of a process are kept, besides the terminal."""
        path = self.log_path(name)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._logs.append(log)
            write_line(log, b"tfs-run: ", f"started at {time.strftime('%Y-%m-%d %H:%M:%S %z')}".encode())
            return [functools.partial(write_line, log, b"")]
        if self._options.shown is not None and name not in self._options.shown:
            self._tails[name] = collections.deque(maxlen=_TAIL_LINES)
            return [self._tails[name].append]
        return []


class PlainOutputs:
    """Writes the output of launchers on other hosts as it comes."""

    def writers(self, name: str) -> list[LineWriter]:
        del name
        return [
            LineWriter(functools.partial(write_line, stream.fileno(), b""))
            for stream in (sys.stdout, sys.stderr)
        ]

    def describe(self, name: str) -> list[str]:
        del name
        return []

    def close(self) -> None:
        """Does nothing, because there are no files."""
