"""Turns the result of Estimator's `input_fn` into an iterator of the only replica of a worker."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

__all__ = ["InputFnIterator"]


class InputFnIterator:
    """One batch each step.

    Args:
        input_fn: called with the context; returns a tf.data.Dataset, or tensors of the graph that are a new batch in each step.
        context: tells which share of the data is this worker's.
    """

    def __init__(self, input_fn: Callable, context: tf.distribute.InputContext) -> None:
        result = input_fn(context)
        self._iterator = (
            tf.compat.v1.data.make_initializable_iterator(result)
            if isinstance(result, tf.data.Dataset)
            else None
        )
        self._tensors = result

    def get_next(self) -> Any:
        return self._tensors if self._iterator is None else self._iterator.get_next()

    def initialize(self) -> tf.Operation:
        """Returns what a session runs before the first batch."""
        return tf.no_op() if self._iterator is None else self._iterator.initializer
