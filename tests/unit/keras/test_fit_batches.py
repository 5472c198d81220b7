"""Batches of other sizes continue at the same row."""

from __future__ import annotations

import itertools
from typing import List, Optional

import numpy as np
import pytest
import tensorflow as tf

from tf_strategies.keras.fit_batches import FitBatches, Parts, add_part

_ROWS = 50


def _batches(
    dataset: tf.data.Dataset,
    rows: int,
    *,
    total: Optional[int] = None,
    steps: Optional[int] = None,
    per_epoch: Optional[int] = None,
) -> FitBatches:
    return FitBatches(
        dataset,
        given=12,
        rows=rows,
        total=total,
        steps_per_epoch=steps,
        per_epoch=per_epoch,
        distribute=lambda each: each,
    )


def _sizes_and_rows(dataset: tf.data.Dataset) -> List[List[int]]:
    return [x.numpy().tolist() for x, _ in dataset]


def _rows(count: int = _ROWS) -> tf.data.Dataset:
    x = np.arange(count)
    return tf.data.Dataset.from_tensor_slices((x, -x))


@pytest.mark.parametrize("total", [None, _ROWS])
def test_each_row_of_an_epoch_counts_once_whatever_the_sizes(total: Optional[int]) -> None:
    parts: Parts = []
    seen: List[int] = []
    sizes = []
    for rows in (12, 8, 4, 16):
        batches = _batches(_rows().batch(12), rows, total=total)
        rest = _sizes_and_rows(batches.distributed([], parts))
        assert batches.steps(parts) == (None if total is None else sum(n for _, n in parts) + len(rest))
        for batch in rest if rows == 16 else rest[:1]:
            seen += batch
            sizes.append(len(batch))
            add_part(parts, rows, 1)
    assert seen == list(range(_ROWS))
    assert sizes == [12, 8, 4, 16, 10]
    assert parts == [[12, 1], [8, 1], [4, 1], [16, 2]]


def test_the_length_is_known_to_keras_if_the_rows_are() -> None:
    assert int(_batches(_rows().batch(12), 8, total=_ROWS).after([], []).cardinality()) == 7
    assert int(_batches(_rows().batch(12), 8, total=_ROWS).after([], [[12, 2]]).cardinality()) == 4
    assert int(_batches(_rows().batch(12), 8).after([], []).cardinality()) == tf.data.UNKNOWN_CARDINALITY


def test_smaller_batches_before_the_place_are_counted_as_they_were() -> None:
    """A dataset that repeats has a smaller batch at the end of each repetition."""
    dataset = _rows().batch(12).repeat()
    taken = _sizes_and_rows(dataset.take(6))
    assert list(map(len, taken)) == [12, 12, 12, 12, 2, 12]
    rest = _sizes_and_rows(_batches(dataset, 4, steps=5).after([[12, 5]], [[12, 1]]).take(10))
    expected = itertools.islice(itertools.cycle(range(_ROWS)), 12, 12 + 40)
    assert list(itertools.chain(*rest)) == list(expected)


def test_no_batch_goes_through_two_epochs_if_the_given_ones_do_not() -> None:
    """Keras 2 has one iterator for all epochs of arrays."""
    dataset = _rows().batch(12).repeat(3)
    again = _sizes_and_rows(
        _batches(dataset, 8, total=_ROWS, per_epoch=5).after([[12, 5]], [[12, 1], [16, 1]])
    )
    assert list(map(len, again)) == [8, 8, 6, 8, 8, 8, 8, 8, 8, 2]
    assert list(itertools.chain(*again)) == [*range(28, _ROWS), *range(_ROWS)]
    whole = _sizes_and_rows(_batches(dataset, 8, total=_ROWS, per_epoch=5).after([], []))
    assert list(map(len, whole)) == [8, 8, 8, 8, 8, 8, 2] * 3
    back = _sizes_and_rows(_batches(dataset, 12, total=_ROWS, per_epoch=5).after([[12, 5]], [[8, 2]]))
    assert list(map(len, back)) == [12, 12, 10, 12, 12, 12, 12, 2]


def test_steps_per_epoch_stands_for_the_same_rows() -> None:
    batches = _batches(_rows().repeat().batch(12), 8, steps=4)
    assert batches.steps([]) == 6
    assert batches.steps([[12, 1], [16, 1]]) == 2 + 3  # 20 of 48 rows are left
    assert _batches(_rows().repeat().batch(12), 12, steps=4).steps([]) == 4
