"""Detects a wire that is slower than the others, and logs a warning."""

from __future__ import annotations

import logging
from typing import NamedTuple, Sequence

from tf_strategies.control_plane.coordinator.suspicion import Suspicion
from tf_strategies.slow_wire import Sent, find_slow_wire

__all__ = ["WireWatch"]

_log = logging.getLogger("tf_strategies")

WINDOW_SECONDS = 1.0  # the shortest window
LEAST_USE = 0.2  # of a window, in which bytes were on their way over a slow wire


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
        self._suspicion = Suspicion()

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
        if found is not None and max(each.seconds for each in found.wires) < LEAST_USE * seconds:
            found = None
        since = self._suspicion.note(None if found is None else found.subject, seconds)
        if found is None or since is None:
            return None
        _log.warning("%s", found.describe(self._names))
        return found.subject
