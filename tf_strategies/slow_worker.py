"""Says why a worker is slower than the others, by the collectives in which they wait for it."""

from __future__ import annotations

__all__ = ["BATCHES", "ROWS", "advice", "precedes_step"]

BATCHES = "replicas with a batch"
ROWS = "rows of the batch"
_MOST = 2 / 3


def precedes_step(name: str) -> bool:
    """Returns True for a collective that a worker submits when it has its next batch, before it computes.

    Args:
        name: the name of the collective.
    """
    return name in (BATCHES, ROWS)


def advice(share: float | None) -> str:
    """Returns what a user should look at on a slow worker, as a part of a sentence and a sentence.

    Args:
        share: the share of the time lost in which the others waited for the worker to have its next batch; None if this is
            not known.
    """
    if share is not None and share >= _MOST:
        return ", mostly before it had its next batch. Look at its input, its callbacks and the disks of its host"
    if share is not None and share <= 1 - _MOST:
        return ", mostly while it computed. Look at its cores or GPUs and what else runs on its host"
    return ". Look at its input, its cores and what else runs on its host"
