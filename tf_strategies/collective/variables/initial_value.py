"""Gives variables the initial value of worker 0 on every worker."""

from __future__ import annotations

from typing import Any, Callable, Optional, Union

import tensorflow as tf

from tf_strategies.collective.worker_group import WorkerGroup
from tf_strategies.types import TensorLike

__all__ = ["initial_value_from_first_worker"]

_STAY_LOCAL = (tf.resource, tf.variant)
_BYTES = [bytes([code]) for code in range(256)]


def initial_value_from_first_worker(
    group: WorkerGroup,
    initial_value: Union[TensorLike, Callable[..., TensorLike]],
    *,
    dtype: Optional[tf.DType],
    name: Optional[str],
) -> Callable[[], tf.Tensor]:
    """Returns a function that makes the initial value of a variable.

    Every worker computes a value, so that random generators advance equally, and replaces it by that of
    worker 0. The broadcast carries the variable's name, shape and dtype, so workers that build different
    models get an error that names both sides.

    Args:
        group: the workers.
        initial_value: an argument of tf.Variable: a value, a function, or a value restored from a checkpoint.
        dtype: the dtype of the variable, or None for the dtype of the value.
        name: of the variable.
    """

    def make(*args: Any, **kwargs: Any) -> tf.Tensor:
        value = initial_value(*args, **kwargs) if callable(initial_value) else initial_value
        value = getattr(value, "wrapped_value", value)
        value = tf.convert_to_tensor(value, dtype=dtype)
        if value.dtype in _STAY_LOCAL:
            return value
        what = f"initial value of {name or 'Variable'}"
        with tf.device("/device:CPU:0"):
            shared = (
                _share_strings(group, value, what)
                if value.dtype == tf.string
                else group.broadcast(value, what)
            )
        shared.set_shape(value.shape)
        return shared

    return make


def _share_strings(group: WorkerGroup, value: tf.Tensor, name: str) -> tf.Tensor:
    """Returns the strings of worker 0. Their lengths are sent first, and then their bytes, each as an int32."""
    lengths = group.broadcast(tf.strings.length(value), name)
    row_lengths = tf.reshape(lengths, [-1])
    total = tf.reduce_sum(row_lengths)
    if group.now.rank == 0:
        text = tf.strings.reduce_join(tf.reshape(value, [-1]))
        codes = tf.cast(tf.io.decode_raw(text, tf.uint8), tf.int32)
    else:
        codes = tf.zeros([total], tf.int32)
    # One additional element, because a message must not be empty.
    codes = group.broadcast(tf.concat([codes, [0]], 0), f"bytes of the {name}")[:total]
    letters = tf.RaggedTensor.from_row_lengths(tf.gather(tf.constant(_BYTES), codes), row_lengths)
    return tf.reshape(tf.strings.reduce_join(letters, axis=-1), tf.shape(lengths))
