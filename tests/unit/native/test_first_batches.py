"""A dataset that shows its first batches hands on all, and shows them as long as somebody iterates."""

from __future__ import annotations

import gc
from typing import Any, List

import numpy as np
import pytest
import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.native.first_batches import show_first_batches


@pytest.fixture
def shown() -> List[tuple]:
    return []


def watched(shown: List[tuple], dataset: tf.data.Dataset) -> tf.data.Dataset:
    def tell(*numbers: np.ndarray) -> np.int64:
        shown.append(tuple(each.tolist() for each in numbers))
        return np.int64(0)

    def show(iteration: tf.Tensor, batch: tf.Tensor, element: Any) -> None:
        tf.numpy_function(tell, [iteration, batch, *tf.nest.flatten(element)], tf.int64)

    return show_first_batches(dataset, 2, show)


def test_each_iteration_shows_its_first_batches(shown: List[tuple]) -> None:
    dataset = watched(shown, tf.data.Dataset.range(6).map(lambda x: {"x": x, "y": -x}).batch(2))
    for _ in range(2):
        assert [batch["x"].numpy().tolist() for batch in dataset] == [[0, 1], [2, 3], [4, 5]]
    of_one = [(0, [0, 1], [0, -1]), (1, [2, 3], [-2, -3])]
    assert shown == [(iteration, *each) for iteration in (0, 1) for each in of_one]


def test_an_iterator_shows_after_its_dataset_is_dropped(shown: List[tuple]) -> None:
    class Shows:
        def show(self, iteration: tf.Tensor, batch: tf.Tensor, element: tf.Tensor) -> None:
            tf.numpy_function(lambda *_: np.int64(0), [iteration, batch, element], tf.int64)

        def __del__(self) -> None:
            shown.append(("dropped",))

    iterator = iter(show_first_batches(tf.data.Dataset.range(3), 2, Shows().show))
    gc.collect()
    assert [int(each) for each in iterator] == [0, 1, 2] and shown == []


def test_a_pipeline_whose_parts_are_dropped_still_runs(shown: List[tuple]) -> None:
    def pipeline() -> tf.data.Dataset:
        offset = tf.constant(10, tf.int64)
        mapped = tf.data.Dataset.range(4).map(
            lambda x: tf.numpy_function(lambda y: y + 1, [x], tf.int64) + offset
        )
        return watched(shown, mapped.filter(lambda x: x != 12))

    dataset = pipeline()
    gc.collect()
    assert [int(each) for each in dataset] == [11, 13, 14]
    assert shown == [(0, 0, 11), (0, 1, 13)]
    assert "PyFunc" in compat.operations_of_functions(dataset)
    assert [type(each).__name__ for each in compat.dataset_sources(dataset)] == ["_RangeDataset"]


def test_a_dataset_is_saved_where_it_is(shown: List[tuple], tmp_path: Any) -> None:
    iterator = iter(watched(shown, tf.data.Dataset.range(9)))
    assert int(next(iterator)) == 0
    checkpoint = tf.train.Checkpoint(iterator=iterator)
    path = checkpoint.save(str(tmp_path / "at"))
    assert [int(next(iterator)) for _ in range(3)] == [1, 2, 3]
    checkpoint.restore(path)
    assert [int(next(iterator)) for _ in range(3)] == [1, 2, 3]
