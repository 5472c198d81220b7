"""Finds wires that are much slower than the others."""

from __future__ import annotations

import statistics
from typing import Iterator, List

from tf_strategies.doctor.findings import Finding
from tf_strategies.doctor.judging.view import View, note, warning
from tf_strategies.doctor.records import Measured

__all__ = ["find", "is_wire", "slow_pairs", "worst_rate"]

_TIMES = 4.0
_FLOOR_SECONDS = 0.002
_LEAST = 3  # wires; with fewer nothing is usual


def find(view: View) -> Iterator[Finding]:
    """Yields findings about measured wires."""
    wires = [each for each in view.measured if is_wire(view, each)]
    rates, trips = _usual(wires)
    for each in slow_pairs(wires):
        where = view.plan.names([each.first, each.second])
        if worst_rate(each) * _TIMES < rates:
            yield warning(
                "pair_slow",
                where,
                f"{megabytes(worst_rate(each))} in the slower direction; the median of {len(wires)} wires is {megabytes(rates)}",
                "see the link speed (ethtool), cable, switch port and other traffic of these two hosts",
            )
        if each.seconds > max(_FLOOR_SECONDS, _TIMES * trips):
            yield warning(
                "latency_high",
                where,
                f"a round trip takes {each.seconds * 1000:.2f} ms; the median of {len(wires)} wires is {trips * 1000:.2f} ms",
                "see the way between these two hosts (traceroute), and power saving of their interfaces and cores",
            )
    for each in view.measured:
        if each.error:
            yield note(
                "not_measured",
                view.plan.names([each.first, each.second]),
                f"the wire could not be measured: {each.error}",
                "run tfs-doctor again, when the hosts are less busy",
            )


def is_wire(view: View, measured: Measured) -> bool:
    """Returns True if a measurement went between hosts."""
    ends = [
        view.reports[each].facts.host for each in (measured.first, measured.second) if each in view.reports
    ]
    return not measured.error and len(set(ends)) == 2


def slow_pairs(wires: List[Measured]) -> List[Measured]:
    """Returns the wires that are several times slower than the median, in bandwidth or latency."""
    if len(wires) < _LEAST:
        return []
    rates, trips = _usual(wires)
    return [
        each
        for each in wires
        if worst_rate(each) * _TIMES < rates or each.seconds > max(_FLOOR_SECONDS, _TIMES * trips)
    ]


def worst_rate(measured: Measured) -> float:
    """Returns the rate in the slower direction, in bytes a second."""
    return min(measured.there, measured.back)


def megabytes(rate: float) -> str:
    """Returns a rate in words."""
    return f"{rate / 1e6:.3g} MB/s" if rate < 1e9 else f"{rate / 1e9:.3g} GB/s"


def _usual(wires: List[Measured]) -> tuple[float, float]:
    if not wires:
        return 0.0, 0.0
    return statistics.median(map(worst_rate, wires)), statistics.median(each.seconds for each in wires)
