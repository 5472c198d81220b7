"""Gives the base classes of our strategies, and makes per-replica values."""

from __future__ import annotations

import tensorflow as tf

from tf_strategies._tf.private_names import private

__all__ = [
    "MirroredExtended",
    "OneDeviceExtended",
    "converted_by_autograph",
    "per_replica",
    "place",
    "regroup",
    "select_replica",
]

MirroredExtended = private.MirroredExtended
OneDeviceExtended = private.OneDeviceExtended
place = private.simple_broadcast
regroup = private.regroup
select_replica = private.select_replica


def per_replica(values):
    """Wraps one value for each local replica in a PerReplica, which has no public constructor."""
    return private.PerReplica(values)


def converted_by_autograph(fn):
    """Returns the replica function, converted by autograph if `Strategy.run` is called in a tf.function.

    TensorFlow converts user code by itself, but not functions that a library calls.
    """
    if tf.executing_eagerly():
        return fn
    return private.tf_convert(fn, private.control_status_ctx())
