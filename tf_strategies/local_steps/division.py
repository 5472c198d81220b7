"""Divides variables into fragments that are averaged at different steps. Imports no TensorFlow."""

from __future__ import annotations

from typing import List, Sequence

__all__ = ["divided"]


def divided(sizes: Sequence[int], fragments: int) -> List[List[int]]:
    """Returns the positions of the variables of each fragment, in order. It depends on the arguments alone.

    The largest variable is placed first, each where the fewest bytes are. So layers of one size are dealt out in turn, as in the
    strided pattern of Douillard et al. 2025, "Streaming DiLoCo with overlapping communication". A variable is never cut.

    Args:
        sizes: the bytes of each variable, in the order of the layers.
        fragments: the number of fragments, at most that of the variables.

    Example:
        >>> divided([400, 4, 400, 4, 400, 4, 400, 4], 2)
        [[0, 1, 4, 5], [2, 3, 6, 7]]
    """
    found: List[List[int]] = [[] for _ in range(fragments)]
    filled = [0] * fragments
    for position in sorted(range(len(sizes)), key=lambda each: -sizes[each]):
        place = filled.index(min(filled))
        found[place].append(position)
        filled[place] += sizes[position]
    return [sorted(positions) for positions in found]
