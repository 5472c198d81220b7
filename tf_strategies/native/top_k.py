"""Top-k gradient selection with error feedback, as a TensorFlow operation."""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tf_strategies.native import loader


class TopK(NamedTuple):
    """The result of `top_k`.

    Attributes:
        indices: [k] int64, ascending: positions in the flattened gradient.
        values: [k] float32.
        remaining: float32, of the gradient's shape: the next residual.
    """

    indices: tf.Tensor
    values: tf.Tensor
    remaining: tf.Tensor


def top_k(gradient: tf.Tensor, residual: tf.Tensor, k: int | tf.Tensor, *, sampled: bool = False) -> TopK:
    """Selects the k entries of `gradient + residual` that are largest in magnitude; the rest remains.

    Among equal magnitudes the lower index is selected. What is not finite ranks first and never remains.

    Args:
        gradient: float32, float16 or bfloat16, of any shape.
        residual: float32, of the same shape: what former selections left.
        k: between 0 and the number of elements.
        sampled: select by a threshold estimated from a sample, between 0.8 k and 1.25 k entries.

    Raises:
        tf.errors.InvalidArgumentError: k is out of range, or the shapes differ.

    References:
        Lin et al. 2018, "Deep gradient compression", section 3. The residual is kept in float32 whatever the gradient's dtype, so
        that small gradients add up.
    """
    return TopK(
        *loader.library().tf_strategies_top_k(
            gradient=gradient, residual=residual, k=tf.cast(k, tf.int64), sampled=sampled
        )
    )
