"""Variables start equal: the initial value of worker 0, on every worker."""

from __future__ import annotations

from typing import Any, Callable, Optional

import tensorflow as tf

__all__ = ["initial_value_from_first_worker"]

_STAY_LOCAL = (tf.string, tf.resource, tf.variant)


def initial_value_from_first_worker(
    group, initial_value: Any, *, dtype: Optional[tf.DType], name: Optional[str]
) -> Callable[[], tf.Tensor]:
    """Returns a function that makes the initial value of a variable.

    The value is made on every worker, so that random generators advance alike, and then replaced by worker 0's. The
    broadcast carries the variable's name, shape and dtype, so workers that build different models fail with both sides named.

    Args:
        group: the workers.
        initial_value: as tf.Variable takes it: a value, a function, or a value restored from a checkpoint.
        dtype: of the variable, or None for the value's own.
        name: of the variable.
    """

    def make(*args: Any, **kwargs: Any) -> tf.Tensor:
        value = initial_value(*args, **kwargs) if callable(initial_value) else initial_value
        value = getattr(value, "wrapped_value", value)
        value = tf.convert_to_tensor(value, dtype=dtype)
        if value.dtype in _STAY_LOCAL:
            return value
        with tf.device("/device:CPU:0"):
            shared = group.broadcast(value, name=f"initial value of {name or 'Variable'}")
        shared.set_shape(value.shape)
        return shared

    return make
