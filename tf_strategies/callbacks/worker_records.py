"""Finds out where each worker continues, from what the workers recorded.

A record is a checkpoint of one worker: its position (epoch, batches, stopped, place), what its callbacks remember, and the
variables it has to itself. None stands for a worker that has recorded nothing.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from tf_strategies.callbacks.backup import lasting
from tf_strategies.callbacks.checkpoint_file import Checkpoint

__all__ = ["at", "own", "position_of", "to_begin_with"]

Record = Optional[Checkpoint]
_POSITION = ("epoch", "batches", "stopped", "place")


def position_of(record: Record) -> Optional[Dict[str, Any]]:
    """Returns the facts that tell where a worker is in its data."""
    return None if record is None else {name: record.facts[name] for name in _POSITION}


def to_begin_with(records: Sequence[Record], size: int, *, own_pace: bool) -> List[Record]:
    """Returns the records for `size` workers after all were restarted.

    Workers that share every batch go on where the chief is. Those with batches of their own go on each where it is; when there
    are more or fewer of them than before, all at the beginning of the epoch of the one that is least far.

    Args:
        records: as saved, by rank.
        size: the number of workers now.
        own_pace: whether each has batches of its own.
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


def at(record: Checkpoint, position: Dict[str, Any]) -> Checkpoint:
    """Returns the record at another position; elsewhere in an epoch its sums of metrics mean nothing."""
    facts = {**record.facts, **position}
    if any(record.facts[name] != position[name] for name in ("epoch", "batches")):
        facts["variables"] = lasting(facts["variables"])
    return Checkpoint(facts, record.arrays)


def own(records: Sequence[Record], rank: int, *, own_pace: bool) -> Record:
    """Returns the record with which a worker goes on that was started again while others trained.

    With batches of its own it goes on where it was; one that shares every batch, where the farthest is.
    """
    known = [record for record in records if record is not None]
    if own_pace or not known:
        return records[rank]
    farthest = max(known, key=lambda record: (record.facts["epoch"], record.facts["batches"]))
    return _moved(records[rank], farthest, position_of(farthest))


def _beginning(records: Sequence[Record]) -> Optional[Dict[str, Any]]:
    """Returns the beginning of the epoch of the worker that is least far.

    Another number of workers has other numbers of steps.
    """
    if any(record is None for record in records):
        return None
    facts = min((record.facts for record in records if record is not None), key=lambda facts: facts["epoch"])
    place = {**facts["place"], "taken": max(0, facts["place"]["taken"] - facts["batches"]), "steps": None}
    return {"epoch": facts["epoch"], "batches": 0, "stopped": facts["stopped"], "place": place}


def _moved(record: Record, template: Record, position: Optional[Dict[str, Any]]) -> Record:
    """Returns the record at another position; one that is missing gets what the template's callbacks remember."""
    if position is None or template is None:
        return None
    if record is None:
        return Checkpoint({**template.facts, **position, "variables": {}}, {})
    return at(record, position)
