"""Adds up the rows of a sparse gradient that have the same index."""

from __future__ import annotations

from typing import Tuple

import tensorflow as tf

__all__ = ["merge_rows"]

_SUMMED_IN_FLOAT32 = (tf.float16, tf.bfloat16)


def merge_rows(values: tf.Tensor, indices: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """Adds up the rows with the same index. On a CPU, rows are added in order: the same input gives the same bits.

    Args:
        values: the rows, [rows, ...] floating.
        indices: their indices, [rows] int32 or int64.

    Returns:
        The sums [different, ...] of the same dtype, and their distinct indices [different] in the order of first appearance.
    """
    different, which = tf.unique(indices)
    summed = tf.cast(values, tf.float32) if values.dtype in _SUMMED_IN_FLOAT32 else values
    return tf.cast(tf.math.unsorted_segment_sum(summed, which, tf.size(different)), values.dtype), different
