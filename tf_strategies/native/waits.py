"""Measures in which collectives a worker waits."""

from __future__ import annotations

from tf_strategies.slow_worker import precedes_step
from tf_strategies.types import JsonObject

__all__ = ["waited_for_batches"]


def waited_for_batches(records: JsonObject, seconds: float) -> float | None:
    """Returns the share of the last seconds in which a worker waited for the others to have their next batch.

    Args:
        records: the object of `tfs_communicator_records`. If it covers less time, the share is that of this time.
        seconds: the time.

    Returns:
        None if the records have no collective before a step.
    """
    now = records.get("monotonic_ns", 0)
    recorded = [
        each for each in records.get("collectives", ()) if each["submitted_ns"] >= now - seconds * 1e9
    ]
    waits = [
        (each["ended_ns"] or now) - each["submitted_ns"] for each in recorded if precedes_step(each["name"])
    ]
    return sum(waits) / max(1, now - recorded[0]["submitted_ns"]) if waits else None
