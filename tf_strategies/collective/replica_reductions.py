"""Reduces and gathers the values of all workers' replicas."""

from __future__ import annotations

from typing import Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.collective.exchange.cross_device import CollectiveCrossDeviceOps, checked_axis
from tf_strategies.collective.replica_runs import ReplicaRuns
from tf_strategies.collective.sessions.replica_gradients import apart
from tf_strategies.collective.worker_group import Collectives
from tf_strategies.keras.joint_step import times
from tf_strategies.types import Destinations, PerReplica, Structure, TensorLike, TensorOrSlices

__all__ = ["ReplicaReductions", "is_float", "is_gradient", "scaled"]


class ReplicaReductions:
    """Implements the reductions and gathers of `tf.distribute`.

    Args:
        group: the workers.
        devices: this worker's devices, one for each local replica.
        cross_device_ops: adds up and gathers values between devices and workers.
        runs: runs the replicas.
    """

    def __init__(
        self,
        group: Collectives,
        devices: Sequence[str],
        cross_device_ops: CollectiveCrossDeviceOps,
        runs: ReplicaRuns,
    ) -> None:
        self._group = group
        self._devices = devices
        self._cross_device_ops = cross_device_ops
        self._runs = runs

    def reduce(
        self, reduce_op: tf.distribute.ReduceOp, value: Structure, destinations: Destinations
    ) -> Structure:
        """Returns the reduced value, or values of the same structure.

        Raises:
            ValueError: the value is the same on all replicas, and a sum was requested.
        """
        if self._reads_local_statistics(reduce_op, value):
            return tf.add_n([tf.convert_to_tensor(part) for part in value.values]) / len(value.values)
        return tf.nest.map_structure(lambda part: self._reduce_one(reduce_op, part, destinations), value)

    def batch_reduce(
        self, reduce_op: tf.distribute.ReduceOp, value_destination_pairs: Sequence[tuple]
    ) -> list:
        """Returns the reduced value of each pair.

        Gradients that are already those of the joint batch are not added up again.
        """
        reduced = [value for value, _ in value_destination_pairs]
        open_pairs = {
            position: (
                apart(self._summand(reduce_op, self.on_each_replica(value), where)),
                self._placed(where),
            )
            for position, (value, where) in enumerate(value_destination_pairs)
            if not self._is_joint(reduce_op, value)
        }
        sums = self._cross_device_ops.batch_reduce(reduce_op, list(open_pairs.values())) if open_pairs else []
        for position, total in zip(open_pairs, sums):
            reduced[position] = total
        return reduced

    def gather(self, value: PerReplica, destinations: Destinations, axis: int) -> PerReplica:
        """Returns the values of all replicas, one after the other along the axis.

        Raises:
            ValueError: the value does not have this axis.
        """
        axis = checked_axis(value, axis)
        if not isinstance(value, tf.distribute.DistributedValues) and self._group.now.size == 1:
            return value
        return self._cross_device_ops._gather(value, destinations=self._placed(destinations), axis=axis)

    def on_each_replica(self, value: PerReplica) -> PerReplica:
        """Returns a value for each replica. TensorFlow treats a tensor that all replicas pass as one value."""
        if (
            isinstance(value, tf.distribute.DistributedValues)
            or len(self._devices) == 1
            or not self._runs.are_running
        ):
            return value
        parts = []
        for device in self._devices:
            with tf.device(device):
                parts.append(tf.identity(value))
        return compat.per_replica(tuple(parts))

    def _reduce_one(
        self, reduce_op: tf.distribute.ReduceOp, value: PerReplica, destinations: Destinations
    ) -> PerReplica:
        if compat.is_mirrored(value):
            if reduce_op == tf.distribute.ReduceOp.MEAN:
                return value
            raise ValueError(
                f"cannot reduce {value!r} with {reduce_op}: it is already the same on every replica; reduce what "
                "`strategy.run` returned, or use ReduceOp.MEAN"
            )
        if not isinstance(value, tf.distribute.DistributedValues) and self._group.now.size == 1:
            return self._reduce_single_value(reduce_op, value, destinations)
        return self._cross_device_ops.reduce(reduce_op, value, destinations=destinations)

    def _reduce_single_value(
        self, reduce_op: tf.distribute.ReduceOp, value: TensorLike, destinations: Destinations
    ) -> PerReplica:
        if reduce_op == tf.distribute.ReduceOp.SUM and len(self._devices) > 1:
            raise ValueError(
                f"cannot reduce {value!r} with ReduceOp.SUM: it is one value, not one for each of the "
                f"{len(self._devices)} replicas; reduce what `strategy.run` returned, or use ReduceOp.MEAN"
            )
        return compat.place(tf.convert_to_tensor(value), destinations)

    def _reads_local_statistics(self, reduce_op: tf.distribute.ReduceOp, value: Structure) -> bool:
        """Returns True if this reads a variable whose replicas average, as Keras 2 keeps batch-norm statistics.

        Such a read does not communicate, so that one worker alone can save a model. Metrics are sums, and are
        reduced over all workers.
        """
        return (
            self._group.now.size > 1
            and reduce_op == tf.distribute.ReduceOp.MEAN
            and compat.is_sync_on_read_variable(value)
        )

    def _is_joint(self, reduce_op: tf.distribute.ReduceOp, value: PerReplica) -> bool:
        """Returns True for a sum of gradients of the joint batch, also if `train_step` itself requests the sum."""
        step = self._runs.step
        return step is not None and reduce_op == tf.distribute.ReduceOp.SUM and step.is_joint(_parts(value))

    def _summand(
        self, reduce_op: tf.distribute.ReduceOp, value: PerReplica, where: Destinations
    ) -> PerReplica:
        """Returns the contribution of the local replicas to a sum."""
        value = self._runs.rows.contributions(value)
        step = self._runs.step
        if step is None or not is_gradient(reduce_op, value, where):
            return value
        parts = _parts(value)
        if len(parts) != len(self._devices):
            return value
        summands = step.as_summands(parts, compat.whole_variable(where))
        if all(mine is given for mine, given in zip(summands, parts)):
            return value
        return compat.per_replica(tuple(summands))

    def _placed(self, destinations: Destinations) -> Destinations:
        """Returns the tensor, placed on this worker's first replica if it has no device yet.

        A tensor in a graph may not have a device yet.
        """
        device: Optional[str] = (
            destinations if isinstance(destinations, str) else getattr(destinations, "device", None)
        )
        return self._devices[0] if device == "" else destinations


def _parts(value: PerReplica) -> Tuple[TensorOrSlices, ...]:
    """Returns the parts of the local replicas."""
    return tuple(value.values) if isinstance(value, tf.distribute.DistributedValues) else (value,)


def is_gradient(reduce_op: tf.distribute.ReduceOp, value: PerReplica, where: Destinations) -> bool:
    """Returns True for a sum that goes to a variable, and whose summands are not that variable."""
    if reduce_op != tf.distribute.ReduceOp.SUM or isinstance(where, str):
        return False
    target = compat.whole_variable(where)
    if target is None:
        return False
    return not any(compat.whole_variable(part) is target for part in _parts(value))


def is_float(value: PerReplica) -> bool:
    """Returns True for a value of floats that is not a variable."""
    parts = _parts(value)
    return all(
        compat.whole_variable(part) is None and getattr(part, "dtype", tf.int32).is_floating for part in parts
    )


def scaled(value: PerReplica, factor: int) -> PerReplica:
    """Returns the value of each replica times a factor."""
    if isinstance(value, tf.distribute.DistributedValues):
        return compat.per_replica(tuple(times(part, factor) for part in value.values))
    return times(value, factor)
