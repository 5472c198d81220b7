"""The bases of our strategies, and the values of their replicas."""

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
    """Wraps one value for each local replica, as `Strategy.run` does; the class has no public constructor."""
    return private.PerReplica(values)


def converted_by_autograph(fn):
    """Returns the replica function as autograph converts it where `Strategy.run` is called in a tf.function, as it is elsewhere.

    TensorFlow converts what it finds in user code by itself, but not what runs inside functions of a library.
    """
    if tf.executing_eagerly():
        return fn
    return private.tf_convert(fn, private.control_status_ctx())
