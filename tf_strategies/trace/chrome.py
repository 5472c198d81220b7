"""Writes records in the format of Chrome's tracing, which Perfetto (ui.perfetto.dev) shows."""

from __future__ import annotations

from typing import Iterator

from tf_strategies.trace.group import Recorded
from tf_strategies.trace.record import Collective
from tf_strategies.types import JsonObject

__all__ = ["events"]


def events(recorded: Recorded) -> Iterator[JsonObject]:
    """Yields the events of a trace: a process for each rank, and in it a row for each collective in flight at once.

    Args:
        recorded: the records.
    """
    meetings = {meeting.collective.key: meeting for meeting in recorded.meetings}
    origin = min(
        (
            each.submitted_ns + alignment.shift_ns
            for record, alignment in zip(recorded.records, recorded.alignments)
            for each in record.collectives
        ),
        default=0,
    )
    for position, record in enumerate(recorded.records):
        shift = recorded.alignments[position].shift_ns - origin
        common = {"pid": record.rank, "cat": "collectives"}
        yield {
            "ph": "M",
            "name": "process_name",
            "pid": record.rank,
            "args": {"name": recorded.name(position)},
        }
        yield {
            "ph": "M",
            "name": "process_sort_index",
            "pid": record.rank,
            "args": {"sort_index": record.rank},
        }
        rows: list[int] = []  # when each row is free
        for each in record.collectives:
            begin, end = each.submitted_ns, each.ended_ns or record.monotonic_ns
            row = next((row for row, free in enumerate(rows) if free <= begin), len(rows))
            rows[row : row + 1] = [end]
            span = {**common, "tid": row, "ph": "X"}
            yield {
                **span,
                **_times(begin + shift, end + shift),
                "name": _title(each),
                "args": _details(each, record.names),
            }
            meeting = meetings.get(each.key)
            if meeting is not None and meeting.begun > begin + shift + origin:
                waits = f"waits for {recorded.name(meeting.last)}"
                yield {
                    **span,
                    **_times(begin + shift, min(meeting.begun - origin, end + shift)),
                    "name": waits,
                }


def _times(begin_ns: int, end_ns: int) -> dict[str, float]:
    return {"ts": begin_ns / 1e3, "dur": max(0, end_ns - begin_ns) / 1e3}


def _title(collective: Collective) -> str:
    if collective.ended_ns == 0:
        return f"{collective.name} (has not ended)"
    return collective.name if collective.code == 0 else f"{collective.name} (failed)"


def _details(collective: Collective, names: tuple[str, ...]) -> JsonObject:
    peer = collective.last_peer
    return {
        "kind": collective.kind,
        "algorithm": collective.algorithm,
        "dtype": collective.dtype,
        "bytes": collective.bytes,
        "instance": collective.instance,
        "use": collective.use,
        "workers": ", ".join(name for rank, name in enumerate(names) if collective.is_of(rank)),
        "last data from": names[peer] if 0 <= peer < len(names) else "nobody",
        "microseconds until it started": max(0, collective.started_ns - collective.submitted_ns) / 1e3,
    }
