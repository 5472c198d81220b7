"""Writes the output of many processes line by line, with the name of the process before each line."""

from __future__ import annotations

import os
import select
from typing import Sequence

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
    """Writes the lines of one stream with a prefix, each line with one write.

    Args:
        descriptor: the file descriptor to write to.
        prefix: the text before each line.
    """

    def __init__(self, descriptor: int, prefix: bytes) -> None:
        self._descriptor = descriptor
        self._prefix = prefix
        self._partial = b""

    def feed(self, data: bytes) -> None:
        """Adds bytes of the stream and writes all complete lines."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > _LONGEST_LINE:
            lines.append(self._partial)
            self._partial = b""
        for line in lines:
            self._write(line)

    def finish(self) -> None:
        """Writes the last line, if it has no newline."""
        if self._partial:
            self._write(self._partial)
            self._partial = b""

    def _write(self, line: bytes) -> None:
        # Progress bars rewrite a line with carriage returns; a terminal shows only the last version.
        shown = line.rstrip(b"\r").rsplit(b"\r", 1)[-1]
        rest = memoryview(self._prefix + shown + b"\n")
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # another process has made the shared descriptor non-blocking
                select.select([], [self._descriptor], [])
