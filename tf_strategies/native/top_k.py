"""Selects the largest elements of a gradient, with error feedback, as a TensorFlow operation."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tf_strategies.native import loader


class TopK(NamedTuple):
    """Holds the result of `top_k`.

    Attributes:
        indices: [k] int64, ascending positions in the flattened gradient.
        values: [k] float32.
        remaining: float32, of the gradient's shape: the next residual.
    """

    indices: tf.Tensor
    values: tf.Tensor
    remaining: tf.Tensor


def top_k(gradient: tf.Tensor, residual: tf.Tensor, k: int | tf.Tensor, *, sampled: bool = False) -> TopK:
    """Selects the k elements of `gradient + residual` with the largest magnitudes. The others form the next residual.

    Among equal magnitudes the lower index is selected. Values that are not finite are selected first, and
    never remain.

    Args:
        gradient: float32, float16 or bfloat16, of any shape.
        residual: float32, of the same shape: the elements that earlier calls have not selected.
        k: between 0 and the number of elements.
        sampled: whether to select by a threshold that is estimated from a sample. Then 0.8 k to 1.25 k
            entries are selected.

    Raises:
        tf.errors.InvalidArgumentError: k is out of range, or the shapes differ.

    References:
        Lin et al. 2018, "Deep gradient compression", section 3. Here the residual is float32 for all dtypes of the
        gradient, so that small gradients add up.
    """
    return TopK(
        *loader.library().tf_strategies_top_k(
            gradient=gradient, residual=residual, k=tf.cast(k, tf.int64), sampled=sampled
        )
    )
