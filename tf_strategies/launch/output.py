"""Output of many processes, line by line, each line prefixed by who wrote it."""

from __future__ import annotations

import os
import select
from typing import Sequence

_LONGEST_LINE = 1 << 16
_COLOURS = (36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94)


def prefixes(names: Sequence[str], colour: bool) -> list[bytes]:
    """Returns a prefix of equal width for each name, "worker 0 | "."""
    width = max(map(len, names))
    plain = [f"{name:<{width}} | " for name in names]
    if not colour:
        return [text.encode() for text in plain]
    return [
        f"\x1b[{_COLOURS[position % len(_COLOURS)]}m{text}\x1b[0m".encode()
        for position, text in enumerate(plain)
    ]


def wants_colour(descriptor: int) -> bool:
    """Returns True if to colour what goes to a descriptor: a terminal, unless NO_COLOR is set."""
    return os.isatty(descriptor) and not os.environ.get("NO_COLOR")


class LineWriter:
    """Writes the lines of one stream, prefixed, each with one write.

    Args:
        descriptor: where to.
        prefix: what each line begins with.
    """

    def __init__(self, descriptor: int, prefix: bytes) -> None:
        self._descriptor = descriptor
        self._prefix = prefix
        self._partial = b""

    def feed(self, data: bytes) -> None:
        """Takes what was read; writes the lines that are complete."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > _LONGEST_LINE:
            lines.append(self._partial)
            self._partial = b""
        for line in lines:
            self._write(line)

    def finish(self) -> None:
        """Writes a last line that had no end."""
        if self._partial:
            self._write(self._partial)
            self._partial = b""

    def _write(self, line: bytes) -> None:
        # A terminal shows the last state of a line that is rewritten with carriage returns, as progress bars are.
        shown = line.rstrip(b"\r").rsplit(b"\r", 1)[-1]
        rest = memoryview(self._prefix + shown + b"\n")
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:  # a process that shares the descriptor has made it non-blocking
                select.select([], [self._descriptor], [])
