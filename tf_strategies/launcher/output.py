"""Writes the output of many processes line by line, with the name of the process before each line."""

from __future__ import annotations

import os
import select
from typing import Callable, Sequence

Sink = Callable[[bytes], None]  # takes a line without its newline

_LONGEST_LINE = 1 << 16
_COLOURS = (36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94)


def prefixes(names: Sequence[str], colour: bool) -> list[bytes]:
    """Returns a prefix for each name, such as "worker 0 | ". All prefixes have the same width."""
    width = max(map(len, names))
    plain = [f"{name:<{width}} | " for name in names]
    if not colour:
        return [text.encode() for text in plain]
    return [
        f"\x1b[{_COLOURS[position % len(_COLOURS)]}m{text}\x1b[0m".encode()
        for position, text in enumerate(plain)
    ]


def wants_colour(descriptor: int) -> bool:
    """Returns True if output to the descriptor is coloured: it is a terminal, and NO_COLOR is not set."""
    return os.isatty(descriptor) and not os.environ.get("NO_COLOR")


class LineWriter:
    """Passes on the lines of one stream, each line with one call.

    Args:
        sinks: the functions that take the lines.
    """

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks
        self._partial = b""

    def feed(self, data: bytes) -> None:
        """Adds bytes of the stream and passes on all complete lines."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > _LONGEST_LINE:
            lines.append(self._partial)
            self._partial = b""
        for line in lines:
            self._pass_on(line)

    def finish(self) -> None:
        """Passes on the last line, if it has no newline."""
        if self._partial:
            self._pass_on(self._partial)
            self._partial = b""

    def _pass_on(self, line: bytes) -> None:
        # Progress bars rewrite a line with carriage returns; a terminal shows only the last version.
        shown = line.rstrip(b"\r").rsplit(b"\r", 1)[-1]
        for sink in self._sinks:
            sink(shown)


def write_line(descriptor: int, prefix: bytes, line: bytes) -> None:
    """Writes a line with a prefix to a file descriptor, also to one that another process made non-blocking."""
    rest = memoryview(prefix + line + b"\n")
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            select.select([], [descriptor], [])
