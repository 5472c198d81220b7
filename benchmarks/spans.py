"""Spans of time, and what they say of one training step: how much of its communication hides behind computation."""

from __future__ import annotations

import dataclasses
from typing import Iterable, Sequence

__all__ = ["COMPUTING", "Span", "Step", "common", "length", "union"]

COMPUTING = ("forward", "backprop", "update")


@dataclasses.dataclass(frozen=True)
class Span:
    """One operation of a step.

    Attributes:
        kind: one of `COMPUTING`, or "collective". "forward" is also what belongs to neither, such as metrics.
        name: of the operation in its graph.
        begin, end: seconds on one clock. A collective begins with its submission, and ends when its result is there.
    """

    kind: str
    name: str
    begin: float
    end: float


class Step:
    """The spans of one training step on one worker.

    Raises:
        ValueError: there is no backprop or no collective among them.
    """

    def __init__(self, spans: Iterable[Span]) -> None:
        self.spans = sorted(spans, key=lambda span: span.begin)
        kinds = {span.kind for span in self.spans}
        if not {"backprop", "collective"} <= kinds:
            raise ValueError(f"a step has spans of backprop and of collectives; got only {sorted(kinds)}")
        computing = union(_times(self.spans, COMPUTING))
        backprop = _times(self.spans, ("backprop",))
        flights = _times(self.spans, ("collective",))
        self.begin = self.spans[0].begin
        self.end = max(span.end for span in self.spans)
        self.backprop_end = max(end for _, end in backprop)
        self.first_flight = min(begin for begin, _ in flights)
        self.communication = length(union(flights))
        self.hidden = length(common(union(flights), computing))
        self.hidden_by_backprop = length(common(union(flights), union(backprop)))

    def row(self) -> dict[str, float]:
        """Times in ms, and shares of the time in which at least one collective is in flight."""
        return {
            "step_ms": 1e3 * (self.end - self.begin),
            "communication_ms": 1e3 * self.communication,
            "hidden_ms": 1e3 * self.hidden,
            "hidden_share": self.hidden / self.communication,
            "hidden_by_backprop_share": self.hidden_by_backprop / self.communication,
            "first_before_end_of_backprop_ms": 1e3 * (self.backprop_end - self.first_flight),
        }


def union(times: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same points of time as intervals in order that do not touch.

    Example:
        >>> union([(3, 4), (0, 2), (1, 3)])
        [(0, 4)]
    """
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(times):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged


def common(
    one: Sequence[tuple[float, float]], other: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """What two unions share.

    Example:
        >>> common([(0, 4), (6, 9)], [(3, 7)])
        [(3, 4), (6, 7)]
    """
    shared, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        begin, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if begin < end:
            shared.append((begin, end))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return shared


def length(times: Iterable[tuple[float, float]]) -> float:
    """Of a union."""
    return sum(end - begin for begin, end in times)


def _times(spans: Iterable[Span], kinds: Sequence[str]) -> list[tuple[float, float]]:
    return [(span.begin, span.end) for span in spans if span.kind in kinds]
