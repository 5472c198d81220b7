"""Finds out from aligned records who waited for whom."""

from __future__ import annotations

import dataclasses
from typing import Iterator, Sequence

from tf_strategies.slow_worker import precedes_step
from tf_strategies.trace.clocks import Alignment, align
from tf_strategies.trace.overlap import hidden_share
from tf_strategies.trace.record import Collective, Record
from tf_strategies.trace.spans import union_ns

__all__ = ["Meeting", "RankSummary", "Recorded"]


@dataclasses.dataclass(frozen=True)
class Meeting:
    """Describes a collective of which all ranks have a record.

    Attributes:
        collective: the collective, as the first rank has it.
        submitted: when each rank submitted it, on the clock of the first rank; by position in the records.
        ended: when it ended on each rank.
    """

    collective: Collective
    submitted: tuple[int, ...]
    ended: tuple[int, ...]

    @property
    def last(self) -> int:
        """The position of the rank that submitted it last."""
        return max(range(len(self.submitted)), key=self.submitted.__getitem__)

    @property
    def precedes_step(self) -> bool:
        """Whether ranks submit it when they have their next batch."""
        return precedes_step(self.collective.name)

    def last_end_but(self, position: int) -> int:
        """Returns when it had ended on all ranks but one: the root of a broadcast does not wait for the others."""
        return max(ended for rank, ended in enumerate(self.ended) if rank != position)


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
        meetings: the collectives that all of these ranks have ended, in the order of the first rank.
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

    def seconds(self) -> float:
        """Returns the recorded time in which all ranks have meetings."""
        if not self.meetings:
            return 0.0
        return (max(map(max, (m.ended for m in self.meetings))) - min(self.meetings[0].submitted)) / 1e9

    def summary(self) -> list[RankSummary]:
        """Returns how each rank spent the recorded time, by position of the records."""
        total = self.seconds() * 1e9 or 1.0
        step_begins = [m for m in self.meetings if m.precedes_step]
        return [
            RankSummary(
                name=self.name(rank),
                waited=union_ns(
                    (m.submitted[rank], min(max(m.submitted), m.ended[rank])) for m in self.meetings
                )
                / total,
                delayed=_delayed_ns(self.meetings, rank) / total,
                delayed_steps=_delayed_ns(step_begins, rank) / total if step_begins else None,
                wire=union_ns((max(m.submitted), m.ended[rank]) for m in self.meetings) / total,
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
        by_key = [
            {
                (each.instance, each.use): each
                for each in record.collectives
                if each.ended_ns and each.code == 0
            }
            for record in self.records
        ]
        for key, first in by_key[0].items():
            found = [ended.get(key) for ended in by_key]
            all_of_them = [each for each in found if each is not None]
            if first.use >= 0 and len(all_of_them) == len(found):
                shifts = [alignment.shift_ns for alignment in self.alignments]
                yield Meeting(
                    first,
                    tuple(each.submitted_ns + shift for each, shift in zip(all_of_them, shifts)),
                    tuple(each.ended_ns + shift for each, shift in zip(all_of_them, shifts)),
                )

    def _without(self, collective: Collective) -> Iterator[str]:
        for position, record in enumerate(self.records):
            key = (collective.instance, collective.use)
            if all((each.instance, each.use) != key for each in record.collectives):
                yield self.name(position)


def _delayed_ns(meetings: Sequence[Meeting], rank: int) -> int:
    """Returns the time in which the others waited for a rank, the last one to submit."""
    return union_ns(
        (sorted(m.submitted)[-2], min(m.submitted[rank], m.last_end_but(rank)))
        for m in meetings
        if m.last == rank and len(m.submitted) > 1
    )
