"""The mechanism behind `CollectiveAllReduceStrategy`: mirrored variables on local devices, values shared between workers."""

from __future__ import annotations

import weakref
from typing import Any, Optional, Sequence

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.collective.cross_device import CollectiveCrossDeviceOps
from tf_strategies.collective.empty_batch import EmptyBatchGuard
from tf_strategies.collective.initial_value import initial_value_from_first_worker
from tf_strategies.collective.input import DatasetDistributor
from tf_strategies.collective.worker_variable import keep_saving_local
from tf_strategies.options import CommunicationOptions

__all__ = ["CollectiveAllReduceExtended"]


class CollectiveAllReduceExtended(compat.MirroredExtended):
    """TensorFlow's mirrored strategy over this worker's devices, stretched over all workers.

    Args:
        strategy: the strategy this belongs to.
        group: the workers.
        options: how they communicate.
        devices: this worker's devices; None for all its GPUs, or its CPU.
        cluster_resolver: what `strategy.cluster_resolver` shows.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        *,
        group,
        options: CommunicationOptions,
        devices: Optional[Sequence[str]],
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,
    ) -> None:
        self._group = group
        self._cluster_resolver = cluster_resolver
        super().__init__(
            strategy,
            devices=devices,
            cross_device_ops=CollectiveCrossDeviceOps(group, options.bytes_per_pack),
        )
        self._distributor = DatasetDistributor(group, len(self._devices))
        self._guard = EmptyBatchGuard(len(self._devices))
        self._replica_state: list = []

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._group.size * len(self._devices)

    def _in_multi_worker_mode(self) -> bool:
        return self._group.size > 1

    @property
    def experimental_between_graph(self) -> bool:
        return self._group.size > 1

    @property
    def should_checkpoint(self) -> bool:
        return self._group.rank == 0

    @property
    def should_save_summary(self) -> bool:
        return self._group.rank == 0

    def _get_replica_id_in_sync_group(self, replica_id: int) -> int:
        return self._group.rank * len(self._devices) + replica_id

    def _get_local_replica_id(self, replica_id_in_sync_group: int) -> int:
        return replica_id_in_sync_group - self._group.rank * len(self._devices)

    def _configure(self, session_config=None, cluster_spec=None, task_type=None, task_id=None) -> None:
        """Accepts what TensorFlow's own coordinator proposes; the group was formed from TF_CONFIG before."""
        del cluster_spec, task_type, task_id
        super()._configure(session_config)

    def _use_merge_call(self) -> bool:
        return True

    def _get_cross_device_ops(self, value):
        del value
        return self._cross_device_ops

    def _get_variable_creator_initial_value(self, replica_id, device, primary_var, **kwargs):
        if replica_id == 0 and self._group.size > 1:
            return initial_value_from_first_worker(
                self._group, kwargs["initial_value"], dtype=kwargs.get("dtype"), name=kwargs.get("name")
            )
        return super()._get_variable_creator_initial_value(replica_id, device, primary_var, **kwargs)

    def _create_variable(self, next_creator, **kwargs):
        belongs_to_another = kwargs.get("colocate_with") is not None
        variable = super()._create_variable(next_creator, **kwargs)
        if self._group.size > 1:
            keep_saving_local(variable)
        if not belongs_to_another and _is_replica_state(variable):
            self._replica_state.append(weakref.ref(variable))
        return variable

    def _call_for_each_replica(self, fn, args, kwargs):
        if self._num_replicas_in_sync == 1:
            return super()._call_for_each_replica(fn, args, kwargs)
        self._replica_state = [reference for reference in self._replica_state if reference() is not None]
        state = [
            variable
            for variable in (reference() for reference in self._replica_state)
            if variable is not None
        ]
        try:
            return super()._call_for_each_replica(self._guard.wrap(fn, state), args, kwargs)
        finally:
            self._guard.forget()

    def _experimental_distribute_dataset(self, dataset, options):
        return self._distributor.distribute(
            dataset, self._container_strategy(), self._input_workers_with_options(options), options
        )

    def _distribute_datasets_from_function(self, dataset_fn, options):
        return self._distributor.distribute_from_function(
            dataset_fn, self._container_strategy(), self._input_workers_with_options(options), options
        )

    def _experimental_distribute_values_from_function(self, value_fn):
        ids = [self._get_replica_id_in_sync_group(i) for i in range(len(self._devices))]
        contexts = [tf.distribute.experimental.ValueContext(i, self._num_replicas_in_sync) for i in ids]
        return compat.per_replica([value_fn(context) for context in contexts])

    def _reduce_to(self, reduce_op, value, destinations, options):
        if self._reads_local_statistics(reduce_op, value):
            return tf.add_n([tf.convert_to_tensor(part) for part in value.values]) / len(value.values)
        return tf.nest.map_structure(
            lambda part: self._reduce_one(reduce_op, part, destinations, options), value
        )

    def _reduce_one(self, reduce_op, value, destinations, options):
        if compat.is_mirrored(value):
            if reduce_op == tf.distribute.ReduceOp.MEAN:
                return value
            raise ValueError(
                f"cannot reduce {value!r} with {reduce_op}: it is the same on every replica already; reduce what "
                "`strategy.run` returned, or use ReduceOp.MEAN"
            )
        if not isinstance(value, tf.distribute.DistributedValues) and self._group.size == 1:
            return self._reduce_single_value(reduce_op, value, destinations)
        return self._cross_device_ops.reduce(reduce_op, value, destinations=destinations)

    def _reduce_single_value(self, reduce_op, value: Any, destinations):
        if reduce_op == tf.distribute.ReduceOp.SUM and len(self._devices) > 1:
            raise ValueError(
                f"cannot reduce {value!r} with ReduceOp.SUM: it is one value, not one for each of the "
                f"{len(self._devices)} replicas; reduce what `strategy.run` returned, or use ReduceOp.MEAN"
            )
        return compat.place(tf.convert_to_tensor(value), destinations)

    def _reads_local_statistics(self, reduce_op, value) -> bool:
        """Whether this reads a variable whose replicas average, as Keras 2 keeps batch-norm statistics.

        Such a read stays on this worker, so that one worker alone can save a model. Metrics are sums and reduced over all.
        """
        return (
            self._group.size > 1
            and reduce_op == tf.distribute.ReduceOp.MEAN
            and compat.is_sync_on_read_variable(value)
        )

    def _batch_reduce_to(self, reduce_op, value_destination_pairs, options):
        del options
        pairs = [
            (self._guard.contributions(value), self._placed(where))
            for value, where in value_destination_pairs
        ]
        return self._cross_device_ops.batch_reduce(reduce_op, pairs)

    def _placed(self, destinations):
        """A tensor in a graph may be on no device yet; it goes where this worker's first replica is."""
        device = destinations if isinstance(destinations, str) else getattr(destinations, "device", None)
        return self._devices[0] if device == "" else destinations

    def _gather_to_implementation(self, value, destinations, axis, options):
        del options
        if not isinstance(value, tf.distribute.DistributedValues) and self._group.size == 1:
            return value
        return self._cross_device_ops._gather(value, destinations=destinations, axis=axis)


def _is_replica_state(variable) -> bool:
    """Whether replicas write the variable on their own: statistics of a layer, sums of a metric."""
    if variable.trainable or not variable.dtype.is_floating:
        return False
    return compat.is_sync_on_read_variable(variable) or variable.aggregation == tf.VariableAggregation.NONE
