"""Detects a member that is slower than the others, and logs a warning."""

from __future__ import annotations

import logging
import statistics
from typing import Callable, NamedTuple, Sequence

from tf_strategies.control_plane.coordinator.suspicion import Suspicion
from tf_strategies.control_plane.messages import Pace
from tf_strategies.slow_worker import advice

__all__ = ["StragglerWatch"]

_log = logging.getLogger("tf_strategies")

WINDOW_SECONDS = 1.0  # the shortest window
WINDOW_COLLECTIVES = 5  # that each member must have ended in a window
LESS_WAITING = 0.25  # how much less of a window a straggler waits than the median of the others


class _Report(NamedTuple):
    at: float  # seconds on the clock of the member
    pace: Pace


class StragglerWatch:
    """Compares how long members wait in collectives, window after window.

    All members take part in each collective, so they are equally fast on average, and the fast ones wait for the slow one:
    the slow one waits least.

    Args:
        names: the names by rank.
        waited_for_batches: returns the share of the last seconds in which rank 0 waited for the others to have their next
            batch; None if this is not known.
    """

    def __init__(
        self, names: Sequence[str], waited_for_batches: Callable[[float], float | None] = lambda seconds: None
    ) -> None:
        self._names, self._waited_for_batches = names, waited_for_batches
        self._first: dict[int, _Report] = {}  # of the window, by rank
        self._last: dict[int, _Report] = {}
        self._suspicion = Suspicion()

    def note(self, rank: int, at: float, pace: Pace) -> int | None:
        """Adds a report of a member.

        Args:
            rank: the member.
            at: the time on its clock, in seconds.
            pace: how far it is.

        Returns:
            The rank of a straggler if this report has led to a warning, otherwise None.
        """
        self._last[rank] = _Report(at, pace)
        self._first.setdefault(rank, self._last[rank])
        if len(self._last) < len(self._names) or len(self._names) < 2:
            return None
        waited: list[float] = []
        for each in (rank, *range(len(self._names))):  # this member first: its window is the newest
            share = self._waited(each)
            if share is None:
                return None
            waited.append(share)
        return self._judge(waited[1:])

    def _waited(self, rank: int) -> float | None:
        """Returns the share of the window that a member waited; None if its window is too short."""
        first, last = self._first[rank], self._last[rank]
        seconds = last.at - first.at
        if seconds < WINDOW_SECONDS or last.pace.ended - first.pace.ended < WINDOW_COLLECTIVES:
            return None
        return (last.pace.outstanding - first.pace.outstanding) / seconds

    def _judge(self, waited: list[float]) -> int | None:
        seconds = self._last[0].at - self._first[0].at
        self._first = dict(self._last)
        slowest = min(range(len(waited)), key=waited.__getitem__)
        others = statistics.median(waited[:slowest] + waited[slowest + 1 :])
        waits_less = others - waited[slowest] >= LESS_WAITING
        since = self._suspicion.note(slowest if waits_less else None, seconds)
        if since is None:
            return None
        _log.warning(
            "%s is slower than the other workers: for %.0f s it has waited in collectives for %.0f %% of the time, and the "
            "others for %.0f %%%s",
            self._names[slowest],
            since,
            100 * waited[slowest],
            100 * others,
            advice(self._share_before_steps(slowest, waited, since)),
        )
        return slowest

    def _share_before_steps(self, slowest: int, waited: list[float], since: float) -> float | None:
        """Returns the share of the time that rank 0 lost in which the straggler did not have its next batch; None if unknown.

        Rank 0 lost what it waited more than the straggler. The rest of its waits is that of messages.
        """
        if slowest == 0 or waited[0] - waited[slowest] < LESS_WAITING:
            return None
        for_batches = self._waited_for_batches(since)
        return None if for_batches is None else for_batches / (waited[0] - waited[slowest])
