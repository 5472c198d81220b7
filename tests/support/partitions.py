"""How tests cut variables into parts."""

from __future__ import annotations


def thirds(shape, dtype) -> list:
    """A partitioner: three parts along axis 0."""
    return [3] + [1] * (shape.rank - 1)
