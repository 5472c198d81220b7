"""A pitfall that was found in a model, with its source and remedy."""

from __future__ import annotations

import dataclasses
from typing import Tuple

__all__ = ["Finding"]


@dataclasses.dataclass(frozen=True)
class Finding:
    """Describes a pitfall of training with large batches that a model has.

    Args:
        pitfall: its name: "weight decay of vectors", "scaled loss", "statistics of the wrong batch", "γ of the last
            normalization", "a shuffle for each worker" or "sum of gradients".
        where: the names of the layers, variables or arguments that have it.
        problem: a sentence that says what was found.
        remedy: a sentence that says what to do.
        source: the paper, and the section in it.

    Example:
        >>> source = "Goyal et al. 2017, §3"
        >>> print(tfs.large_batch.Finding("sum of gradients", ("loss",), "It sums.", "Take the mean.", source))
        sum of gradients (loss): It sums. Take the mean. See Goyal et al. 2017, §3.
    """

    pitfall: str
    where: Tuple[str, ...]
    problem: str
    remedy: str
    source: str

    def __str__(self) -> str:
        names = ", ".join(self.where[:4]) + (
            f" and {len(self.where) - 4} more" if len(self.where) > 4 else ""
        )
        return f"{self.pitfall} ({names}): {self.problem} {self.remedy} See {self.source}."
