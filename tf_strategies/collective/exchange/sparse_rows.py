"""Merges IndexedSlices to one row for each index, and converts them to dense tables for an all-reduce, and back.

All functions run on the CPU, where rows are added in order: the same input gives the same bits on every
worker.
"""

from __future__ import annotations

from typing import List, Sequence, Tuple, Union

import tensorflow as tf

__all__ = ["HOST", "from_dense", "merge_rows", "number_of_rows", "row_shape", "to_dense"]

HOST = "/device:CPU:0"
_SUMMED_IN_FLOAT32 = (tf.float16, tf.bfloat16)


def merge_rows(parts: Sequence[tf.IndexedSlices]) -> tf.IndexedSlices:
    """Merges the rows of all parts. Rows with the same index are added up.

    Args:
        parts: slices of one table: values [rows, ...], indices [rows] int32 or int64.

    Returns:
        Slices with distinct indices, in the order of first appearance.
    """
    with tf.device(HOST):
        values = tf.concat([part.values for part in parts], 0)
        indices, position = tf.unique(tf.concat([part.indices for part in parts], 0))
        return tf.IndexedSlices(
            _segment_sum(values, position, tf.size(indices)), indices, parts[0].dense_shape
        )


def number_of_rows(slices: tf.IndexedSlices) -> Union[int, tf.Tensor, None]:
    """Returns the number of rows of the whole table.

    This is an int if it is known while tracing, otherwise a tensor [] int64, or None if it is unknown.
    """
    if slices.dense_shape is None:
        return None
    static = tf.get_static_value(slices.dense_shape)
    return tf.cast(slices.dense_shape[0], tf.int64) if static is None else int(static[0])


def row_shape(values: tf.Tensor) -> Tuple[Union[List[int], tf.Tensor], Union[int, tf.Tensor]]:
    """Returns the shape of one row, a list or a tensor, and its number of elements: an int or a tensor [] int64."""
    static = values.shape[1:]
    if static.is_fully_defined():
        return static.as_list(), static.num_elements()
    dynamic = tf.shape(values, out_type=tf.int64)[1:]
    return dynamic, tf.reduce_prod(dynamic)


def to_dense(slices: tf.IndexedSlices, rows: Union[int, tf.Tensor]) -> Tuple[tf.Tensor, tf.Tensor]:
    """Returns `slices` as a dense table.

    The dense table has one additional row for indices out of range. The slices from `from_dense` then have an
    index out of range, too, and TensorFlow raises its usual error when they are applied.

    Args:
        slices: slices with distinct indices.
        rows: the number of rows of the table, as from `number_of_rows`.

    Returns:
        The table [rows + 1, ...], and a number for each row [rows + 1] of the same dtype, above 0 if the
        slices have the row.
    """
    with tf.device(HOST):
        limit = tf.cast(rows, slices.indices.dtype)
        within = (slices.indices >= 0) & (slices.indices < limit)
        place = tf.where(within, slices.indices, limit)
        ones = tf.ones(tf.shape(place), slices.values.dtype)
        return (
            tf.math.unsorted_segment_sum(slices.values, place, rows + 1),
            tf.math.unsorted_segment_sum(ones, place, rows + 1),
        )


def from_dense(sums: tf.Tensor, touched: tf.Tensor, like: tf.IndexedSlices) -> tf.IndexedSlices:
    """Returns the rows that some worker has, in ascending order.

    Args:
        sums, touched: the results of `to_dense`, added up over workers.
        like: slices of the same table.
    """
    with tf.device(HOST):
        indices = tf.where(touched > 0)[:, 0]
        values = tf.gather(sums, indices)
        return tf.IndexedSlices(values, tf.cast(indices, like.indices.dtype), like.dense_shape)


def _segment_sum(values: tf.Tensor, position: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    if values.dtype in _SUMMED_IN_FLOAT32:
        return tf.cast(
            tf.math.unsorted_segment_sum(tf.cast(values, tf.float32), position, count), values.dtype
        )
    return tf.math.unsorted_segment_sum(values, position, count)
