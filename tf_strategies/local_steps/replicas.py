"""Reads and writes variables whose copies on the replicas of this worker are equal."""

from __future__ import annotations

import tensorflow as tf

from tf_strategies.keras.model_state import replicas_of

__all__ = ["assign_all", "wide_value"]


def wide_value(variable: tf.Variable) -> tf.Tensor:
    """Returns the value of a variable, as float32 if it has fewer bits."""
    value = replicas_of(variable)[0].read_value()
    return tf.cast(value, tf.float32) if value.dtype.size < 4 else value


def assign_all(variable: tf.Variable, value: tf.Tensor) -> None:
    """Assigns a value to all replicas of a variable, in the dtype of the variable."""
    for part in replicas_of(variable):
        with tf.device(part.device):
            part.assign(tf.cast(value, part.dtype), read_value=False)
