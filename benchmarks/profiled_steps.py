"""What TensorFlow's profiler recorded of training steps, as spans.

The profiler's own span of an async operation ends when its kernel has been started. So a collective is taken from the begin of
the executor's event "ProcessAsync::Start" to the end of its "ProcessAsync::Done", which name operation and step.
"""

from __future__ import annotations

import collections
import re
from pathlib import Path
from typing import Any, Iterator, NamedTuple

from tensorflow.tsl.profiler.protobuf import xplane_pb2

from benchmarks.spans import Span

__all__ = ["read_steps"]

_COLLECTIVES = frozenset(
    f"TfStrategies>{each}" for each in ("AllReduce", "AllGather", "AllToAll", "Broadcast")
)
_START, _DONE = "ExecutorState::ProcessAsync::Start", "ExecutorState::ProcessAsync::Done"
_PROCESS = "ExecutorState::Process"
_OPERATION = re.compile(r"(?P<name>[^:\s]+):(?P<type>_?[A-Z]\w*)")
_WAITING = re.compile(r"_?(Recv|Send|Arg|Retval|NoOp|PartitionedCall|StatefulPartitionedCall|\w*Iterator\w*)")


class _Event(NamedTuple):
    line: int
    name: str
    begin: float
    end: float
    facts: dict[str, Any]


def read_steps(folder: Path) -> list[list[Span]]:
    """The steps below the folder of a profile, in order of time; those alone that have as many collectives as most.

    Raises:
        ValueError: it holds no step with a collective.
    """
    events = [event for path in sorted(folder.rglob("*.xplane.pb")) for event in _events(path)]
    flights = _flights(events)
    counts = collections.Counter(len(each) for each in flights.values())
    if not counts:
        raise ValueError(
            f"{folder} has a profile of {len(events)} events, and no collective of ours among them"
        )
    usual = counts.most_common(1)[0][0]
    steps = [[*each, *_computing(events, step)] for step, each in flights.items() if len(each) == usual]
    return sorted(steps, key=lambda step: min(span.begin for span in step))


def _events(path: Path) -> Iterator[_Event]:
    space = xplane_pb2.XSpace()
    space.ParseFromString(path.read_bytes())
    for plane in space.planes:
        names = {number: entry.name for number, entry in plane.event_metadata.items()}
        facts = {number: entry.name for number, entry in plane.stat_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                begin = line.timestamp_ns * 1e-9 + event.offset_ps * 1e-12
                yield _Event(
                    line.id,
                    names[event.metadata_id],
                    begin,
                    begin + event.duration_ps * 1e-12,
                    {facts[stat.metadata_id]: _value(stat, facts) for stat in event.stats},
                )


def _value(stat: xplane_pb2.XStat, texts: dict[int, str]) -> Any:
    kind = stat.WhichOneof("value")
    return texts[stat.ref_value] if kind == "ref_value" else getattr(stat, kind) if kind else None


def _flights(events: list[_Event]) -> dict[int, list[Span]]:
    """By step, the collectives of which begin and end were recorded."""
    ends = {
        (event.facts["step_id"], event.facts["name"]): event.end
        for event in events
        if event.name == _DONE and event.facts.get("kernel_type") in _COLLECTIVES
    }
    flights: dict[int, list[Span]] = {}
    for event in events:
        if event.name == _START and event.facts.get("kernel_type") in _COLLECTIVES:
            step, name = event.facts["step_id"], event.facts["name"]
            if (step, name) in ends:
                flights.setdefault(step, []).append(Span("collective", name, event.begin, ends[step, name]))
    return flights


def _computing(events: list[_Event], step: int) -> Iterator[Span]:
    """The operations that ran, on the threads that ran the step, while they ran it."""
    turns: dict[int, list[_Event]] = {}
    for event in events:
        if event.name == _PROCESS and event.facts.get("id") == step:
            turns.setdefault(event.line, []).append(event)
    for event in events:
        found = _OPERATION.fullmatch(event.name)
        if found is None or _WAITING.fullmatch(found["type"]):
            continue
        if any(turn.begin <= event.begin and event.end <= turn.end for turn in turns.get(event.line, ())):
            yield Span(_kind(found["name"], found["type"]), found["name"], event.begin, event.end)


def _kind(name: str, operation: str) -> str:
    if "gradient_tape/" in name:
        return "backprop"
    if "/update" in name or operation.startswith(("Assign", "ResourceScatter", "ResourceApply")):
        return "update"
    return "forward"
