"""Finds out from aligned records who waited for whom."""

from __future__ import annotations

import dataclasses
from typing import Iterator, Mapping, Sequence

from tf_strategies.native.host import network_of
from tf_strategies.slow_wire import SlowWire, find_slow_wire
from tf_strategies.slow_worker import precedes_step
from tf_strategies.trace.clocks import Alignment, align
from tf_strategies.trace.overlap import hidden_share
from tf_strategies.trace.record import Collective, Record
from tf_strategies.trace.spans import union_ns

__all__ = ["Meeting", "RankSummary", "Recorded"]


@dataclasses.dataclass(frozen=True)
class Meeting:
    """Describes a collective that all of its ranks have ended, of those with a record.

    Attributes:
        collective: the collective, as the first rank has it.
        submitted: when each rank submitted it, on the clock of the first rank; by position in the records.
        ended: when it ended on each rank, likewise.
    """

    collective: Collective
    submitted: Mapping[int, int]
    ended: Mapping[int, int]

    @property
    def begun(self) -> int:
        """When the last rank had submitted it."""
        return self.submitted[self.last]

    @property
    def last(self) -> int:
        """The position of the rank that submitted it last."""
        return max(self.submitted, key=self.submitted.__getitem__)

    @property
    def precedes_step(self) -> bool:
        """Whether ranks submit it when they have their next batch."""
        return precedes_step(self.collective.name)

    def last_end_but(self, position: int) -> int:
        """Returns when it had ended on all ranks but one: the root of a broadcast does not wait for the others."""
        return max(ended for each, ended in self.ended.items() if each != position)


@dataclasses.dataclass(frozen=True)
class RankSummary:
    """Says how a rank spent the recorded time, as shares of it.

    Attributes:
        name: the name of the rank.
        waited: waited for other ranks that had not submitted a collective yet.
        delayed: was waited for by others, as the last one to submit.
        delayed_steps: the part of `delayed` before it had its next batch, or None if the records do not say.
        wire: had a collective outstanding that all ranks had submitted.
        hidden: the share of its time of communication that was hidden behind computation; see `hidden_share`. None if it has
            no collectives.
    """

    name: str
    waited: float
    delayed: float
    delayed_steps: float | None
    wire: float
    hidden: float | None


class Recorded:
    """Holds the records of a group, on one clock.

    Args:
        records: the records, by rank. Some ranks may be missing.

    Attributes:
        records: the records.
        alignments: how the clock of each compares with the first one.
        meetings: the collectives that all of their ranks have ended, of those with a record.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = list(records)
        self.alignments: list[Alignment] = align(records)
        self.meetings = list(self._meetings())

    @property
    def missing(self) -> list[str]:
        """The names of the ranks of which there is no record."""
        ranks = {record.rank for record in self.records}
        return [name for rank, name in enumerate(self.records[0].names) if rank not in ranks]

    def name(self, position: int) -> str:
        """Returns the name of the rank at a position of the records."""
        record = self.records[position]
        return record.names[record.rank]

    def unfinished(self) -> Iterator[tuple[int, Collective, float, list[str]]]:
        """Yields each collective that has not ended well on a rank although it has waited.

        Yields:
            The position of the rank, the collective, the seconds for which it waited, and the names of the ranks that
            have not submitted it, of those with a record.
        """
        for position, record in enumerate(self.records):
            for each in record.collectives:
                if each.use >= 0 and (each.code != 0 or each.ended_ns == 0):
                    until = each.ended_ns or record.monotonic_ns
                    yield position, each, (until - each.submitted_ns) / 1e9, list(self._without(each))

    def slow_wire(self) -> SlowWire | None:
        """Returns the wires between hosts that are slower than the others, if there are such."""
        networks = list(map(network_of, self.records[0].hosts))
        wires = [wire for record in self.records for wire in record.wires]
        return find_slow_wire([wire for wire in wires if networks[wire.sender] != networks[wire.receiver]])

    def seconds(self) -> float:
        """Returns the recorded time in which all ranks have meetings."""
        if not self.meetings:
            return 0.0
        begin = min(min(m.submitted.values()) for m in self.meetings)
        return (max(max(m.ended.values()) for m in self.meetings) - begin) / 1e9

    def summary(self) -> list[RankSummary]:
        """Returns how each rank spent the recorded time, by position of the records."""
        total = self.seconds() * 1e9 or 1.0
        step_begins = [m for m in self.meetings if m.precedes_step]
        return [
            RankSummary(
                name=self.name(rank),
                waited=union_ns(
                    (m.submitted[rank], min(m.begun, m.ended[rank]))
                    for m in self.meetings
                    if rank in m.submitted
                )
                / total,
                delayed=_delayed_ns(self.meetings, rank) / total,
                delayed_steps=_delayed_ns(step_begins, rank) / total if step_begins else None,
                wire=union_ns((m.begun, m.ended[rank]) for m in self.meetings if rank in m.ended) / total,
                hidden=hidden_share(self.records[rank].collectives),
            )
            for rank in range(len(self.records))
        ]

    def slowest(self, summary: Sequence[RankSummary]) -> int | None:
        """Returns the position of a rank that delays the others much more than any other does, or None.

        Args:
            summary: the result of `summary`.
        """
        if len(summary) < 2:
            return None
        ordered = sorted(range(len(summary)), key=lambda rank: summary[rank].delayed)
        worst, second = summary[ordered[-1]].delayed, summary[ordered[-2]].delayed
        return ordered[-1] if worst >= 0.1 and worst >= 2 * second else None

    def _meetings(self) -> Iterator[Meeting]:
        by_key: dict[tuple[int, int, int], dict[int, Collective]] = {}
        for position, record in enumerate(self.records):
            for each in record.collectives:
                if each.ended_ns and each.code == 0 and each.use >= 0:
                    by_key.setdefault(each.key, {})[position] = each
        shifts = [alignment.shift_ns for alignment in self.alignments]
        for found in by_key.values():
            first = next(iter(found.values()))
            if len(found) == sum(first.is_of(record.rank) for record in self.records):
                yield Meeting(
                    first,
                    {position: each.submitted_ns + shifts[position] for position, each in found.items()},
                    {position: each.ended_ns + shifts[position] for position, each in found.items()},
                )

    def _without(self, collective: Collective) -> Iterator[str]:
        for position, record in enumerate(self.records):
            takes_part = collective.is_of(record.rank)
            if takes_part and all(each.key != collective.key for each in record.collectives):
                yield self.name(position)


def _delayed_ns(meetings: Sequence[Meeting], rank: int) -> int:
    """Returns the time in which the others waited for a rank, the last one to submit."""
    return union_ns(
        (sorted(m.submitted.values())[-2], min(m.submitted[rank], m.last_end_but(rank)))
        for m in meetings
        if m.last == rank and len(m.submitted) > 1
    )
