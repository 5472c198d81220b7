"""Measures how much of a worker's communication was hidden behind its computation."""

from __future__ import annotations

import bisect
import re
from typing import Optional, Sequence, Tuple

from tf_strategies.trace.record import Collective
from tf_strategies.trace.spans import union_ns

__all__ = ["hidden_share"]

_PACK = re.compile(r"pack (\d+) of (\d+)")

_Reduction = Tuple[int, int, int]


def hidden_share(collectives: Sequence[Collective]) -> Optional[float]:
    """Estimates the share of the time of communication in which the worker computed, from 0 to 1.

    The time of communication is that in which at least one collective was outstanding. While a collective is outstanding, the
    worker computes until it submits another one that does not depend on it. Two collectives are independent if they are packs
    of one reduction, or if one was submitted before the other ended. Computation that submits nothing is not seen, such as
    that of the optimizer for the packs that have arrived.

    Args:
        collectives: those of one worker. Collectives that have not ended well are left out.

    Returns:
        None if no time passed in collectives.
    """
    ended = [each for each in collectives if each.ended_ns and each.code == 0]
    total = union_ns((each.submitted_ns, each.ended_ns) for each in ended)
    if not total:
        return None
    submissions = sorted(each.submitted_ns for each in ended)
    last_of: dict[_Reduction, int] = {}
    for each in ended:
        reduction = _reduction_of(each)
        if reduction is not None:
            last_of[reduction] = max(each.submitted_ns, last_of.get(reduction, 0))

    def computes_until(each: Collective) -> int:
        overlapping = submissions[bisect.bisect_right(submissions, each.ended_ns) - 1]
        reduction = _reduction_of(each)
        together = 0 if reduction is None else last_of[reduction]
        return min(each.ended_ns, max(overlapping, together))

    return union_ns((each.submitted_ns, computes_until(each)) for each in ended) / total


def _reduction_of(collective: Collective) -> Optional[_Reduction]:
    """Returns what the packs of one reduction have in common; None if the collective is not one of several packs."""
    found = _PACK.fullmatch(collective.name)
    if found is None:
        return None
    number, packs = map(int, found.groups())
    return None if packs == 1 else (collective.instance - number, packs, collective.use)
