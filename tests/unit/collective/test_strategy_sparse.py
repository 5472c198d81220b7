"""Slices as sets of rows: merging, dense tables and back, and the choice between them, in one process."""

from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tf_strategies.collective import CollectiveAllReduceStrategy  # noqa: E402
from tf_strategies.collective.exchange import sparse  # noqa: E402
from tf_strategies.collective.exchange.sparse_rows import (  # noqa: E402
    from_dense,
    merge_rows,
    number_of_rows,
    to_dense,
)


def slices(indices, values, shape=None, dtype=tf.float32, index_dtype=tf.int32) -> tf.IndexedSlices:
    shape = None if shape is None else tf.constant(shape)
    return tf.IndexedSlices(tf.constant(values, dtype), tf.constant(indices, index_dtype), shape)


def test_rows_with_the_same_index_are_added_up_and_keep_their_order() -> None:
    merged = merge_rows([slices([7, 2, 7], [[1.0], [2.0], [4.0]]), slices([2, 5], [[8.0], [16.0]])])
    assert merged.indices.numpy().tolist() == [7, 2, 5]
    assert merged.values.numpy().tolist() == [[5.0], [10.0], [16.0]]


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_many_rows_of_sixteen_bits_are_added_up_without_loss(dtype) -> None:
    merged = merge_rows([slices(np.zeros(3000), np.ones([3000, 2]), dtype=dtype)])
    expected = tf.cast(3000.0, dtype)
    assert merged.values.dtype == dtype
    assert (merged.values.numpy() == expected.numpy()).all()


def test_no_rows_merge_to_no_rows() -> None:
    merged = merge_rows([slices([], np.zeros([0, 2, 3]))])
    assert merged.indices.shape == [0] and merged.values.shape == [0, 2, 3]


@pytest.mark.parametrize("row", [(), (4,), (2, 3)])
def test_a_dense_table_gives_back_the_rows_it_was_made_of(row) -> None:
    given = slices([3, 0, 8], np.arange(1, 4).reshape([3] + [1] * len(row)) * np.ones(row), [9, *row])
    sums, touched = to_dense(given, 9)
    assert sums.shape == [10, *row] and touched.shape == [10]
    back = from_dense(sums, touched, like=given)
    assert back.indices.numpy().tolist() == [0, 3, 8] and back.indices.dtype == tf.int32
    np.testing.assert_array_equal(back.values, tf.gather(given.values, [1, 0, 2]))


def test_a_row_of_zeros_is_still_a_row() -> None:
    given = slices([4], [[0.0]], [9, 1])
    assert from_dense(*to_dense(given, 9), like=given).indices.numpy().tolist() == [4]


@pytest.mark.parametrize("wrong", [-1, 9, 2**33 + 3])
def test_an_index_out_of_range_comes_back_out_of_range(wrong: int) -> None:
    given = slices([1, wrong], [[1.0], [2.0]], [9, 1], index_dtype=tf.int64)
    back = from_dense(*to_dense(given, 9), like=given)
    assert back.indices.numpy().tolist() == [1, 9]
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.Variable(tf.zeros([9, 1])).scatter_add(back)


def test_the_rows_of_a_table_are_known_or_found_out_or_unknown() -> None:
    seen = []

    @tf.function(input_signature=[tf.TensorSpec([2], tf.int32)])
    def trace(shape):
        seen.extend(
            number_of_rows(tf.IndexedSlices(tf.zeros([1, 4]), tf.zeros([1], tf.int32), each))
            for each in (shape, tf.constant([7, 4]), None)
        )
        return seen[0]

    assert int(trace(tf.constant([5, 4]))) == 5
    assert tf.is_tensor(seen[0]) and seen[1:] == [7, None]


def test_small_tables_are_those_that_fit_the_limit_with_a_number_for_each_row() -> None:
    width = 15
    fitting = sparse.SMALL_TABLE_BYTES // (4 * (width + 1)) - 1
    assert sparse.is_small_table(slices([0], np.zeros([1, width]), [fitting, width]))
    assert not sparse.is_small_table(slices([0], np.zeros([1, width]), [fitting + 1, width]))
    assert not sparse.is_small_table(slices([0], np.zeros([1, width])))


def test_two_replicas_of_one_worker_give_each_row_once() -> None:
    strategy = CollectiveAllReduceStrategy(devices=["CPU:0", "CPU:1"])

    @tf.function
    def step():
        def replica():
            mine = tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)
            rows = tf.IndexedSlices(tf.ones([3, 2]) * (mine + 1), tf.constant([6, 1, 6]), tf.constant([9, 2]))
            return tf.distribute.get_replica_context().all_reduce("MEAN", rows)

        return strategy.run(replica)

    for part in strategy.experimental_local_results(step()):
        assert part.indices.numpy().tolist() == [6, 1]
        assert part.values.numpy().tolist() == [[3.0, 3.0], [1.5, 1.5]]
