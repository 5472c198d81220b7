"""Adds operations to the user's `train_op`."""

from __future__ import annotations

from typing import Callable, Sequence

import tensorflow as tf

from tf_strategies.types import Fetch, Structure

__all__ = ["followed_by"]


def followed_by(
    spec: Structure, parts: Callable[[Structure], Sequence[Fetch]], then: Callable[[], Sequence[Fetch]]
) -> Structure:
    """Returns the EstimatorSpec of all local replicas.

    The operations that `then` makes run after its `train_op`.

    A session runs only operations that a fetch needs, and the `train_op` is fetched in each step.

    Args:
        spec: the result of the replicas. A result without a `train_op` is returned unchanged, and `then` is
            not called.
        parts: returns the values of the local replicas, given a distributed value.
        then: makes the operations, which run after the `train_op` of every local replica.
    """
    if getattr(spec, "train_op", None) is None:
        return spec
    with tf.control_dependencies(list(parts(spec.train_op))):
        last = tf.group(*then())
    return spec._make(last if name == "train_op" else getattr(spec, name) for name in spec._fields)
