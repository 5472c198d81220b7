"""Adds to every step of training what it does besides the user's `train_op`."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import tensorflow as tf

__all__ = ["followed_by"]


def followed_by(spec: Any, parts: Callable[[Any], Sequence[Any]], then: Callable[[], Sequence[Any]]) -> Any:
    """Returns the EstimatorSpec of all local replicas, whose `train_op` goes on with what `then` makes.

    A session runs nothing that does not lead to a fetch; the `train_op` is fetched in each step.

    Args:
        spec: what the replicas returned; anything without a `train_op` comes back as it is, and `then` is not called.
        parts: the values of the local replicas in one of all.
        then: makes the operations, which run after the `train_op` of every local replica.
    """
    if getattr(spec, "train_op", None) is None:
        return spec
    with tf.control_dependencies(list(parts(spec.train_op))):
        last = tf.group(*then())
    return spec._make(last if name == "train_op" else getattr(spec, name) for name in spec._fields)
