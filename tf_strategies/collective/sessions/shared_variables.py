"""Gives the variables of a session's graph the values of the chief, restored or new, on all workers."""

from __future__ import annotations

import tensorflow as tf

from tf_strategies.collective.worker_group import WorkerGroup

__all__ = ["share_variables"]

_STAY_LOCAL = (tf.string, tf.resource, tf.variant)


def share_variables(group: WorkerGroup) -> tf.Operation:
    """Returns the operation that assigns the values of worker 0 to all global variables of the default graph.

    A collective.

    The messages carry names, shapes and dtypes, so workers that build different models get an error that
    names both sides. A worker's state of compression is not shared, because only its sum over workers counts.
    """
    assigned = []
    for variable in tf.compat.v1.global_variables():
        if variable.dtype.base_dtype in _STAY_LOCAL or _belongs_to_worker(variable):
            continue
        parts = variable.values if isinstance(variable, tf.distribute.DistributedValues) else (variable,)
        with tf.device("/device:CPU:0"):
            shared = group.broadcast(parts[0].read_value(), name=f"initial value of {variable.op.name}")
        shared.set_shape(parts[0].shape)
        for part in parts:
            with tf.device(part.device):
                assigned.append(part.assign(shared, read_value=False))
    return tf.group(*assigned)


def _belongs_to_worker(variable: tf.Variable) -> bool:
    return (
        not isinstance(variable, tf.distribute.DistributedValues)
        and variable.synchronization == tf.VariableSynchronization.ON_READ
        and variable.aggregation == tf.VariableAggregation.SUM
    )
