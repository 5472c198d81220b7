"""Aligns the clocks of workers."""

from __future__ import annotations

from typing import NamedTuple, Optional, Sequence

from tf_strategies.trace.record import Collective, Record

__all__ = ["Alignment", "align"]

_SYNCHRONIZING = frozenset({"all_reduce", "all_gather", "barrier"})  # no rank ends before all have submitted
_UNKNOWN = 1 << 62


class Alignment(NamedTuple):
    """Says how a rank's clock compares with that of the first rank.

    Attributes:
        shift_ns: what is added to its times.
        error_ns: the largest error, or −1 if the clocks could not be compared.
    """

    shift_ns: int
    error_ns: int


class _Interval(NamedTuple):
    low: int
    high: int

    def meet(self, other: _Interval) -> Optional[_Interval]:
        low, high = max(self.low, other.low), min(self.high, other.high)
        return _Interval(low, high) if low <= high else None


def align(records: Sequence[Record]) -> list[Alignment]:
    """Returns the alignment of each record with the first one.

    Processes of one host have the same clock. For others there are two sources: the round trips to rank 0 (see
    `ClockOffset`), and the collectives themselves, which cannot end on one rank before another has begun.

    Args:
        records: the records of one group, by rank.
    """
    return [_compare(records[0], record) for record in records]


def _compare(first: Record, other: Record) -> Alignment:
    if first.hosts[first.rank] == other.hosts[other.rank]:
        return Alignment(0, 0)
    bounds = _of_collectives(first, other)
    found = bounds
    if first.offset is not None and other.offset is not None:
        shift = other.offset[0] - first.offset[0]
        error = other.offset[1] + first.offset[1]
        # The two disagree if a clock was set or has drifted since; a collective cannot lie.
        found = bounds.meet(_Interval(shift - error, shift + error)) or bounds
    if found.high - found.low >= _UNKNOWN:
        return Alignment(0, -1)
    return Alignment((found.low + found.high) // 2, (found.high - found.low + 1) // 2)


def _of_collectives(first: Record, other: Record) -> _Interval:
    """Returns the limits of the shift from `other` to `first`."""
    theirs = {each.key: each for each in other.collectives if _counts(each)}
    low, high = -_UNKNOWN, _UNKNOWN
    for mine in filter(_counts, first.collectives):
        match = theirs.get(mine.key)
        if match is not None:
            low = max(low, mine.submitted_ns - match.ended_ns)
            high = min(high, mine.ended_ns - match.submitted_ns)
    # They contradict each other if a clock has drifted meanwhile: the truth was in between.
    return _Interval(min(low, high), max(low, high))


def _counts(collective: Collective) -> bool:
    ended = collective.code == 0 and collective.ended_ns > 0
    return ended and collective.use >= 0 and collective.kind in _SYNCHRONIZING
