"""Provides batches for Estimator. All workers run out of data in the same step."""

from __future__ import annotations

from typing import Callable

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.collective.worker_group import WorkerGroup
from tf_strategies.types import Structure

__all__ = ["EndsTogether"]


class EndsTogether:
    """An iterator over the batches of the local replicas, which ends on all workers when one worker has no batch left.

    Before each step the workers exchange one small message on who has a batch. Workers that had batches left
    log this.

    Args:
        iterator: the iterator of this worker, made by TensorFlow from an input function.
        group: the workers, two or more.
    """

    def __init__(self, iterator: tf.distribute.DistributedIterator, group: WorkerGroup) -> None:
        self._iterator = iterator
        self._group = group

    def initialize(self) -> tf.Operation:
        """Returns the operation that restarts the iterator."""
        return self._iterator.initialize()

    @property
    def initializer(self) -> tf.Operation:
        """The result of `initialize`, under the name that iterators of TensorFlow 1 use."""
        return self._iterator.initializer

    def get_next(self) -> Structure:
        """Returns the next batch of each local replica.

        Running it raises tf.errors.OutOfRangeError on all workers when one of them has no batch.
        """
        batches = compat.optional_batches(self._iterator)
        with tf.device("/device:CPU:0"):
            has_batch = tf.reduce_all(tf.stack([batch.has_value() for batch in batches]))
            mine = tf.one_hot(self._group.rank, self._group.size, dtype=tf.int32)
            everyone = self._group.all_reduce([mine * tf.cast(has_batch, tf.int32)], name="who has a batch")[
                0
            ]
            everyone.set_shape([self._group.size])
            goes_on = tf.cond(
                tf.reduce_all(everyone > 0),
                lambda: tf.constant(True),
                lambda: _end_of(has_batch, self._name_of_first_without(everyone)),
            )
            with tf.control_dependencies([goes_on]):
                values = [batch.get_value() for batch in batches]
        return compat.regroup(tuple(values))

    def _name_of_first_without(self, everyone: tf.Tensor) -> Callable[[], tf.Tensor]:
        names = [self._group.name_of(rank) for rank in range(self._group.size)]
        return lambda: tf.gather(tf.constant(names), tf.argmin(everyone))


def _end_of(had_batch: tf.Tensor, name: Callable[[], tf.Tensor]) -> tf.Tensor:
    """Raises tf.errors.OutOfRangeError when it runs. Logs who ended first, if this worker had batches left."""

    def tell() -> tf.Tensor:
        said = tf.print("tf_strategies:", name(), "has no batch left; training ends on all workers")
        with tf.control_dependencies([said]):
            return tf.constant(True)

    said = tf.cond(had_batch, tell, lambda: tf.constant(True))
    nothing = tf.compat.v1.data.make_one_shot_iterator(tf.data.Dataset.from_tensors(True).take(0))
    with tf.control_dependencies([said]):
        return nothing.get_next()
