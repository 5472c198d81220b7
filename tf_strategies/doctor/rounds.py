"""Orders the pairs that are measured in rounds, so that no end takes part twice in a round."""

from __future__ import annotations

from typing import List, Sequence, Tuple, TypeVar

__all__ = ["tournament"]

_End = TypeVar("_End")


def tournament(ends: Sequence[_End]) -> List[List[Tuple[_End, _End]]]:
    """Returns the rounds of a tournament in which each meets each other once: the circle method.

    Example:
        >>> tournament(["a", "b", "c"])
        [[('b', 'c')], [('a', 'c')], [('a', 'b')]]
    """
    circle = list(range(len(ends))) + ([-1] if len(ends) % 2 else [])
    rounds = []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        pairs = zip(circle[:half], reversed(circle[half:]))
        rounds.append([(ends[min(pair)], ends[max(pair)]) for pair in pairs if -1 not in pair])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return rounds
