"""Makes an iterator for the only replica of a worker from Estimator's `input_fn`."""

from __future__ import annotations

from typing import Callable

import tensorflow as tf

from tf_strategies.types import Structure

__all__ = ["InputFnIterator"]


class InputFnIterator:
    """Returns one batch in each step.

    Args:
        input_fn: takes the context, and returns a tf.data.Dataset, or tensors of the graph that have a new
            batch in each step.
        context: describes this worker's share of the data.
    """

    def __init__(
        self, input_fn: Callable[[tf.distribute.InputContext], Structure], context: tf.distribute.InputContext
    ) -> None:
        result = input_fn(context)
        self._iterator = (
            tf.compat.v1.data.make_initializable_iterator(result)
            if isinstance(result, tf.data.Dataset)
            else None
        )
        self._tensors = result

    def get_next(self) -> Structure:
        return self._tensors if self._iterator is None else self._iterator.get_next()

    def initialize(self) -> tf.Operation:
        """Returns the operation that a session runs before the first batch."""
        return tf.no_op() if self._iterator is None else self._iterator.initializer
