"""Whether what a process holds stays the same, from samples taken while it works.

Growth is the median slope between all pairs of samples (Theil 1950, Sen 1968), times the steps between the first and the last: a
leak lifts all pairs, while one late allocation, or a sample taken in the middle of something, lifts few.
"""

from __future__ import annotations

import itertools
import statistics
from typing import Dict, List, Mapping, Sequence

from tests.soak.resources import Sample

__all__ = ["COUNTS", "growth", "table", "too_much"]

MEMORY = ("resident", "heap")
COUNTS = ("descriptors", "threads", "shared")
_MB = 1e6


def growth(samples: Sequence[Sample], field: str) -> float:
    """By how much a field grew from the first sample to the last, but for outliers; in the field's unit."""
    slopes = [
        (getattr(after, field) - getattr(before, field)) / (after.step - before.step)
        for before, after in itertools.combinations(samples, 2)
    ]
    return statistics.median(slopes) * (samples[-1].step - samples[0].step)


def too_much(samples: Sequence[Sample], limits: Mapping[str, float]) -> List[str]:
    """What grew more than its limit, in words: `limits` gives the most that each field may grow."""
    found: Dict[str, float] = {field: growth(samples, field) for field in limits}
    steps = samples[-1].step - samples[0].step
    return [
        f"{field} grew by {grown:,.0f} in {steps:,} steps ({grown / steps:,.1f} a step); allowed are {limits[field]:,.0f}"
        for field, grown in found.items()
        if grown > limits[field]
    ]


def table(samples_by_worker: Mapping[str, Sequence[Sample]]) -> str:
    """First, last and growth of everything, a line for each worker."""
    lines = [
        f"{'':<10}{'steps':>15}{'resident MB':>19}{'grows':>8}{'heap MB':>19}{'grows':>8}{'fds':>9}{'threads':>9}"
        f"{'mappings':>12}{'shared MB':>14}"
    ]
    for name, samples in samples_by_worker.items():
        first, last = samples[0], samples[-1]
        cells = [f"{name:<10}{first.step:>7,}-{last.step:<7,}"]
        for field in MEMORY:
            start, end = getattr(first, field) / _MB, getattr(last, field) / _MB
            cells.append(f"{f'{start:.2f} - {end:.2f}':>19}{growth(samples, field) / _MB:>+8.2f}")
        for field, width in (("descriptors", 9), ("threads", 9), ("mappings", 12)):
            cells.append(f"{f'{getattr(first, field)}-{getattr(last, field)}':>{width}}")
        cells.append(f"{f'{first.shared / _MB:.1f}-{last.shared / _MB:.1f}':>14}")
        lines.append("".join(cells))
    return "\n".join(lines)
