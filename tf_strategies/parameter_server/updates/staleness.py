"""Reports the staleness of the gradients that were applied."""

from __future__ import annotations

import dataclasses
from typing import Tuple

from tf_strategies.parameter_server.cluster.membership import Membership

__all__ = ["StalenessStats"]


@dataclasses.dataclass(frozen=True)
class StalenessStats:
    """Describes the staleness of gradients: the updates by other workers between reading the weights and applying the gradient.

    Attributes:
        count: the number of gradients that were applied.
        mean: their mean staleness; 0.0 if there were none.
        maximum: the largest staleness.
        histogram: [256] the numbers of gradients with staleness 0, 1, 2, …; the last entry counts all from 255.
    """

    count: int
    mean: float
    maximum: int
    histogram: Tuple[int, ...]

    @classmethod
    def from_ledger(cls, membership: Membership) -> StalenessStats:
        found = membership.staleness()
        count = int(found.count)
        histogram = tuple(int(bin) for bin in found.histogram.numpy())
        return cls(count, int(found.total) / max(count, 1), int(found.maximum), histogram)
