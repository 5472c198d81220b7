"""Computes products over the workers, which the core does not reduce itself."""

from __future__ import annotations

import functools

import tensorflow as tf

from tf_strategies.collective.worker_group import WorkerGroup

__all__ = ["product"]


def product(group: WorkerGroup, elements: tf.Tensor) -> tf.Tensor:
    """Returns the elementwise product over all workers, of the elements of each, [n]. A collective.

    Each worker multiplies one segment of the elements of all workers, and sends its products to all. This takes as many bytes
    on the wire as a ring.
    """
    count, size = elements.shape[0], group.size
    if count == 0 or size == 1:
        return elements
    padded = tf.pad(elements, [[0, -count % size]], constant_values=1)
    rows = tf.reshape(padded, [size, -1])
    received, _ = group.all_to_all(rows, tf.ones([size], tf.int64), "strategy.all_reduce/segments")
    segment = functools.reduce(tf.multiply, tf.unstack(received))
    return group.all_gather(segment, "strategy.all_reduce/products")[:count]
