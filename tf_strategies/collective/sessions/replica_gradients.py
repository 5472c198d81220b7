"""Reduces values of several local replicas in a graph that a session runs."""

from __future__ import annotations

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.session_graphs.coordinator import in_session_graph
from tf_strategies.types import PerReplica

__all__ = ["apart"]


def apart(value: PerReplica) -> PerReplica:
    """Returns the per-replica value, through which no gradient flows from a sum to the variables of other local replicas.

    `ReplicaContext.all_reduce` has its own gradient. In graphs of sessions, TensorFlow follows the sum from
    each replica into all others, and fails on their variables.
    """
    if not in_session_graph() or not isinstance(value, tf.distribute.DistributedValues):
        return value
    parts = value.values
    if len(parts) == 1 or not all(isinstance(part, tf.Tensor) for part in parts):
        return value
    return compat.per_replica(tuple(tf.stop_gradient(part) for part in parts))
