"""Finds out where each worker resumes, from the records that the workers saved.

A record is the checkpoint of one worker: its position (epoch, batches, stopped, place), the states of its
callbacks, and its local variables. None stands for a worker without a record.
"""

from __future__ import annotations

from typing import List, Optional, Sequence

from tf_strategies.callbacks.backup import lasting
from tf_strategies.callbacks.checkpoint_file import Checkpoint
from tf_strategies.types import JsonObject

__all__ = ["at", "own", "position_of", "to_begin_with"]

Record = Optional[Checkpoint]
_POSITION = ("epoch", "batches", "stopped", "place")


def position_of(record: Record) -> Optional[JsonObject]:
    """Returns the facts about a worker's position in its data."""
    return None if record is None else {name: record.facts[name] for name in _POSITION}


def to_begin_with(records: Sequence[Record], size: int, *, own_pace: bool) -> List[Record]:
    """Returns the records for `size` workers after all of them were restarted.

    Workers that share every batch resume at the position of the chief. Workers with their own batches each
    resume at their own position. If their number has changed, all resume at the beginning of the epoch of the
    slowest worker.

    Args:
        records: the saved records, by rank.
        size: the number of workers now.
        own_pace: whether each worker has its own batches.
    """
    if not records:
        return [None] * size
    if own_pace and len(records) == size:
        return list(records)
    position = _beginning(records) if own_pace else position_of(records[0])
    if position is None:
        return [None] * size
    given = [*records, *[None] * size][:size]
    return [_moved(record, records[0], position) for record in given]


def at(record: Checkpoint, position: JsonObject) -> Checkpoint:
    """Returns the record at another position, without its sums of metrics, which belong to the old position."""
    facts = {**record.facts, **position}
    if any(record.facts[name] != position[name] for name in ("epoch", "batches")):
        facts["variables"] = lasting(facts["variables"])
    return Checkpoint(facts, record.arrays)


def own(records: Sequence[Record], rank: int, *, own_pace: bool) -> Record:
    """Returns the record at which a worker resumes that was restarted while others trained.

    A worker with its own batches resumes at its own position. A worker that shares every batch resumes at the
    position of the fastest worker.
    """
    known = [record for record in records if record is not None]
    if own_pace or not known:
        return records[rank]
    farthest = max(known, key=lambda record: (record.facts["epoch"], record.facts["batches"]))
    return _moved(records[rank], farthest, position_of(farthest))


def _beginning(records: Sequence[Record]) -> Optional[JsonObject]:
    """Returns the beginning of the epoch of the slowest worker.

    With another number of workers, the number of steps in an epoch changes.
    """
    if any(record is None for record in records):
        return None
    facts = min((record.facts for record in records if record is not None), key=lambda facts: facts["epoch"])
    place = {**facts["place"], "taken": max(0, facts["place"]["taken"] - facts["batches"]), "steps": None}
    return {"epoch": facts["epoch"], "batches": 0, "stopped": facts["stopped"], "place": place}


def _moved(record: Record, template: Record, position: Optional[JsonObject]) -> Record:
    """Returns the record at another position. A missing record gets the callback states of the template."""
    if position is None or template is None:
        return None
    if record is None:
        return Checkpoint({**template.facts, **position, "variables": {}}, {})
    return at(record, position)
