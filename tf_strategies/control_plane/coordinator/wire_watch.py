"""Detects a wire that is slower than the others, and logs a warning."""

from __future__ import annotations

import logging
import time
from typing import NamedTuple, Sequence

from tf_strategies.slow_wire import Sent, find_slow_wire

__all__ = ["WireWatch"]

_log = logging.getLogger("tf_strategies")

WINDOW_SECONDS = 1.0  # the shortest window
WINDOWS = 3  # one after the other with the same slow wire, before the warning
LEAST_USE = 0.2  # of a window, in which bytes were on their way over a slow wire
QUIET_SECONDS = 600.0  # between two warnings of the same wire


class _Report(NamedTuple):
    at: float  # seconds on the clock of the member
    sent: dict[int, Sent]  # by receiver


class WireWatch:
    """Compares the rates at which members send to each other, window after window.

    Args:
        names: the names by rank.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._first: dict[int, _Report] = {}  # of the window, by rank
        self._last: dict[int, _Report] = {}
        self._suspect: tuple[int, ...] = ()
        self._windows = 0
        self._warned: dict[tuple[int, ...], float] = {}

    def note(self, rank: int, at: float, sent: Sequence[Sent]) -> tuple[int, ...] | None:
        """Adds a report of a member.

        Args:
            rank: the member.
            at: the time on its clock, in seconds.
            sent: what it has sent to each other member since the group was formed.

        Returns:
            The ranks of `SlowWire.subject` if this report has led to a warning, otherwise None.
        """
        self._last[rank] = _Report(at, {each.receiver: each for each in sent})
        self._first.setdefault(rank, self._last[rank])
        if len(self._last) < len(self._names):
            return None
        seconds = [self._last[each].at - self._first[each].at for each in self._last]
        if min(seconds) < WINDOW_SECONDS:
            return None
        window = [
            each.since(self._first[member].sent.get(each.receiver))
            for member, last in self._last.items()
            for each in last.sent.values()
        ]
        self._first = dict(self._last)
        return self._judge(window, max(seconds))

    def _judge(self, window: Sequence[Sent], seconds: float) -> tuple[int, ...] | None:
        found = find_slow_wire(window)
        if found is None or max(each.seconds for each in found.wires) < LEAST_USE * seconds:
            self._suspect, self._windows = (), 0
            return None
        self._windows = self._windows + 1 if found.subject == self._suspect else 1
        self._suspect = found.subject
        now = time.monotonic()
        if self._windows < WINDOWS or now - self._warned.get(found.subject, -QUIET_SECONDS) < QUIET_SECONDS:
            return None
        self._warned[found.subject] = now
        _log.warning("%s", found.describe(self._names))
        return found.subject
