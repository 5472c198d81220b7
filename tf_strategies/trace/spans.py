"""Adds up spans of time."""

from __future__ import annotations

from typing import Iterable, Tuple

__all__ = ["Span", "union_ns"]

Span = Tuple[int, int]  # from and to, in nanoseconds


def union_ns(spans: Iterable[Span]) -> int:
    """Returns the length of the union of time spans. Empty and negative spans do not count.

    Args:
        spans: pairs of times in nanoseconds.
    """
    total, end = 0, None
    for low, high in sorted(span for span in spans if span[1] > span[0]):
        if end is None or low > end:
            total += high - low
            end = high
        elif high > end:
            total += high - end
            end = high
    return total
