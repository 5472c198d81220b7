"""How stale applied gradients were."""

from __future__ import annotations

import dataclasses
from typing import Tuple

from tf_strategies.parameter_server.cluster.membership import Membership

__all__ = ["StalenessStats"]


@dataclasses.dataclass(frozen=True)
class StalenessStats:
    """The staleness of a gradient: how many updates others made between the reading of the weights and its own update.

    Attributes:
        count: how many gradients were applied.
        mean: their mean staleness; 0.0 when there was none.
        maximum: the largest.
        histogram: how many had staleness 0, 1, 2, ...; the last of its 256 entries counts all from 255.
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
