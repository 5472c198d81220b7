"""Where workers go on, by what they recorded."""

from __future__ import annotations

from typing import Any, Dict, Optional

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from tf_strategies.callbacks.checkpoint_file import Checkpoint
from tf_strategies.callbacks.worker_records import own, position_of, to_begin_with

SUM, STATE = {"label": "total"}, {"label": "seed"}


def record(epoch: int, batches: int = 0, mark: str = "") -> Checkpoint:
    """Of a worker that keeps its iterator, with 6 batches an epoch."""
    place = {"iterator": 1, "taken": 6 * epoch + batches, "epoch_ends": epoch, "steps": 6}
    facts = {"epoch": epoch, "batches": batches, "stopped": False, "place": place, "callbacks": [mark]}
    variables = {"model/3": STATE, "metrics/0": SUM}
    return Checkpoint({**facts, "variables": variables}, {"model/3": np.array([epoch])})


def moved(found: Optional[Checkpoint]) -> Dict[str, Any]:
    assert found is not None
    facts = found.facts
    return {
        "at": (facts["epoch"], facts["batches"]),
        "by": facts["callbacks"],
        "has": set(facts["variables"]),
    }


def test_workers_that_share_batches_all_begin_where_the_chief_is() -> None:
    records = [record(2, 3, "a"), record(2, 2, "b"), None]
    begun = to_begin_with(records, 3, own_pace=False)
    assert [position_of(each) for each in begun] == [position_of(records[0])] * 3
    assert moved(begun[0])["has"] == {"model/3", "metrics/0"}
    # Sums at another batch mean nothing here, and one that has nothing gets what the chief's callbacks remember.
    assert moved(begun[1]) == {"at": (2, 3), "by": ["b"], "has": {"model/3"}}
    assert moved(begun[2]) == {"at": (2, 3), "by": ["a"], "has": set()}


@pytest.mark.parametrize("size", [1, 5])
def test_more_or_fewer_that_share_batches_begin_there_too(size: int) -> None:
    begun = to_begin_with([record(2, 3, "a"), record(2, 3, "b"), record(2, 3, "c")], size, own_pace=False)
    assert [moved(each)["at"] for each in begun] == [(2, 3)] * size
    assert [moved(each)["by"] for each in begun] == [["a"], ["b"], ["c"], ["a"], ["a"]][:size]


def test_workers_with_batches_of_their_own_begin_each_at_its_place() -> None:
    records = [record(2, 3), None, record(1, 5)]
    assert to_begin_with(records, 3, own_pace=True) == records


def test_more_or_fewer_of_them_begin_with_the_epoch_of_the_last() -> None:
    begun = to_begin_with([record(2, 3), record(1, 5)], 3, own_pace=True)
    assert [moved(each)["at"] for each in begun] == [(1, 0)] * 3
    places = [each.facts["place"] for each in begun if each is not None]
    assert places == [{"iterator": 1, "taken": 6, "epoch_ends": 1, "steps": None}] * 3
    assert to_begin_with([record(2, 3), None], 3, own_pace=True) == [None] * 3


def test_files_without_records_begin_anew() -> None:
    assert to_begin_with([], 2, own_pace=True) == to_begin_with([], 2, own_pace=False) == [None, None]


def test_one_that_came_back_goes_on_at_its_place_or_joins_the_farthest() -> None:
    records = [record(2, 3, "a"), record(1, 5, "b"), None]
    assert own(records, 1, own_pace=True) is records[1]
    assert own(records, 2, own_pace=True) is None
    assert moved(own(records, 1, own_pace=False)) == {"at": (2, 3), "by": ["b"], "has": {"model/3"}}
    assert moved(own(records, 2, own_pace=False)) == {"at": (2, 3), "by": ["a"], "has": set()}
    assert own([None, None], 1, own_pace=False) is None
