"""Implements `CollectiveAllReduceStrategy`: mirrored variables on local devices, and reductions between workers."""

from __future__ import annotations

import contextlib
from typing import Iterator, Optional, Sequence, Union

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.collective.exchange.cross_device import CollectiveCrossDeviceOps
from tf_strategies.collective.input.datasets import DatasetDistributor
from tf_strategies.collective.replica_reductions import (
    ReplicaReductions,
    is_float,
    is_gradient,
    scaled,
)
from tf_strategies.collective.replica_runs import ReplicaRuns
from tf_strategies.collective.sessions.session_creator import GroupSessionCreator
from tf_strategies.collective.sessions.session_input import EndsTogether
from tf_strategies.collective.variables.embedding_table import look_up_in_place
from tf_strategies.collective.variables.initial_value import initial_value_from_first_worker
from tf_strategies.collective.variables.moving_statistics import ReplicaStatistics
from tf_strategies.collective.variables.out_of_place import add_out_of_place
from tf_strategies.collective.variables.worker_variable import keep_saving_local
from tf_strategies.collective.worker_group import WorkerGroup
from tf_strategies.collective.workers_of_step import WorkersOfStep
from tf_strategies.compression import Compressor
from tf_strategies.errors import OptionsError
from tf_strategies.keras.types import Variable
from tf_strategies.options import CommunicationOptions
from tf_strategies.session_graphs.coordinator import in_session_graph, is_coordinated, make_sessions_with
from tf_strategies.session_graphs.kinds import adapt
from tf_strategies.session_graphs.session_config import show_devices

__all__ = ["CollectiveAllReduceExtended"]


class CollectiveAllReduceExtended(compat.MirroredExtended):
    """Extends TensorFlow's mirrored strategy from this worker's devices to all workers.

    Args:
        strategy: the strategy this belongs to.
        group: the workers.
        options: the options of communication.
        compressor: the compressor of gradients; None for no compression.
        devices: this worker's devices; None for all its GPUs, or its CPU.
        cluster_resolver: the value of `strategy.cluster_resolver`.
        only_me: a group of this worker alone, for local steps; None if there are none.
    """

    # TensorFlow's coordinator must not start a server: the group already listens on this task's address.
    _std_server_started = True

    variables_made = 0

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        *,
        group: WorkerGroup,
        options: CommunicationOptions,
        compressor: Optional[Compressor],
        devices: Optional[Sequence[str]],
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,
        only_me: Optional[WorkerGroup] = None,
    ) -> None:
        self._workers = group
        self._cluster_resolver = cluster_resolver
        self._of_step = None if only_me is None else WorkersOfStep(group, only_me)
        together = group if self._of_step is None else self._of_step
        super().__init__(
            strategy,
            devices=devices,
            cross_device_ops=CollectiveCrossDeviceOps(together, options.bytes_per_pack, compressor),
        )
        self._cross_device_ops.run_on(self._devices[0])
        self._distributor = DatasetDistributor(group, len(self._devices), counts_always=self._of_step is None)
        self._runs = ReplicaRuns(
            strategy,
            together,
            self._devices,
            sum_between_workers=self._cross_device_ops.sum_between_workers,
            alone=self.alone_in_step,
        )
        self._reductions = ReplicaReductions(together, self._devices, self._cross_device_ops, self._runs)
        self._alone = False
        self._averaged = None
        self._is_coordinated = self._is_merging = False

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._workers.size * len(self._devices)

    @property
    def replicas_now(self) -> int:
        """The number of all replicas; see `Collectives.now`."""
        return self._workers.now.size * len(self._devices)

    def replica_now(self) -> int:
        """Returns the number of the running replica among all replicas; see `Collectives.now`."""
        return self._workers.now.rank * len(self._devices) + self._runs.rows.local_replica()

    def replicas_in_graph(self) -> Union[int, tf.Tensor]:
        """Returns the number of all replicas; see `Collectives.size_in_graph`."""
        return self._workers.size_in_graph() * len(self._devices)

    def _in_multi_worker_mode(self) -> bool:
        # One worker that is left has the data and functions of several, so that it can use those that it has traced. Functions of
        # several local replicas are traced again.
        may_have_others = self._workers.may_have_others and len(self._devices) == 1
        return may_have_others or self._workers.now.size > 1

    # KerasTuner uses these attributes of MultiWorkerMirroredStrategy to name a worker's temporary folder.
    @property
    def _task_type(self) -> str:
        return self._cluster_resolver.task_type

    @property
    def _task_id(self) -> int:
        return self._cluster_resolver.task_id

    @property
    def experimental_between_graph(self) -> bool:
        return self._workers.now.size > 1

    @property
    def should_checkpoint(self) -> bool:
        return self._workers.rank == 0 and self._cluster_resolver.task_type != "evaluator"

    @property
    def should_save_summary(self) -> bool:
        return self.should_checkpoint

    def _get_replica_id_in_sync_group(self, replica_id: int) -> int:
        return self._workers.rank * len(self._devices) + replica_id

    def _get_local_replica_id(self, replica_id_in_sync_group: int) -> int:
        if len(self._devices) == 1:
            return 0
        return replica_id_in_sync_group - self._workers.rank * len(self._devices)

    def _configure(self, session_config=None, cluster_spec=None, task_type=None, task_id=None) -> None:
        """Ignores the settings of TensorFlow's coordinator, because the group was already formed from TF_CONFIG."""
        del cluster_spec, task_type, task_id
        super()._configure(session_config)
        adapt(self._container_strategy())
        # Sessions of Estimator share all variables after the chief has restored them. Other sessions share a
        # variable when they initialize it.
        self._is_coordinated = is_coordinated()
        make_sessions_with(self._session_creator)

    def _session_creator(self, scaffold, config=None, **settings):
        config = self._update_config_proto(tf.compat.v1.ConfigProto() if config is None else config)
        return GroupSessionCreator(self._workers, scaffold, config=config, **settings)

    def _update_config_proto(self, config_proto):
        config = super()._update_config_proto(config_proto)
        show_devices(config, self._devices)
        return config

    def _use_merge_call(self) -> bool:
        return not self._is_merging

    @contextlib.contextmanager
    def merging(self) -> Iterator[None]:
        """Opens a context of a `merge_call` in which what would be merged runs at once, such as updates of an optimizer."""
        before, self._is_merging = self._is_merging, True
        try:
            yield
        finally:
            self._is_merging = before

    def _get_cross_device_ops(self, value):
        del value
        return self._cross_device_ops

    def _get_variable_creator_initial_value(self, replica_id, device, primary_var, **kwargs):
        is_shared_later = in_session_graph() and self._is_coordinated
        alone = self._alone or self._workers.is_behind
        if replica_id == 0 and self._workers.now.size > 1 and not alone and not is_shared_later:
            return initial_value_from_first_worker(
                self._workers, kwargs["initial_value"], dtype=kwargs.get("dtype"), name=kwargs.get("name")
            )
        return super()._get_variable_creator_initial_value(replica_id, device, primary_var, **kwargs)

    def _create_variable(self, next_creator, **kwargs):
        belongs_to_another = kwargs.get("colocate_with") is not None
        if in_session_graph() and kwargs.get("trainable") is None:
            # TensorFlow treats None as False when it collects variables, and as True when it makes them.
            kwargs["trainable"] = kwargs.get("synchronization") != tf.VariableSynchronization.ON_READ
        variable = super()._create_variable(next_creator, **kwargs)
        self.variables_made += 1
        if self._workers.may_have_others:
            keep_saving_local(variable)
        if not belongs_to_another:
            self._runs.statistics.adopt(variable)
            look_up_in_place(variable)
        if self._container_strategy().is_elastic:
            add_out_of_place(variable)
        if _is_metric(variable):
            self._runs.keep_metric(variable)
        return variable

    @property
    def statistics(self) -> ReplicaStatistics:
        """The variables that replicas average, such as those of batch normalization."""
        return self._runs.statistics

    def _call_for_each_replica(self, fn, args, kwargs):
        return self._runs.call(fn, args, kwargs, super()._call_for_each_replica)

    def joint_steps(self, **how):
        """Opens a context in which replica functions are steps of Keras.

        The arguments are those of `ReplicaRuns.joint_steps`.
        """
        return self._runs.joint_steps(**how)

    def alone_in_step(self):
        """Opens a context in which reductions concern this worker's replicas alone, as in a local step."""
        return contextlib.nullcontext() if self._of_step is None else self._of_step.alone()

    @property
    def sum_between_workers(self):
        """The function that adds up tensors over workers; see `CollectiveCrossDeviceOps`."""
        return self._cross_device_ops.sum_between_workers

    @contextlib.contextmanager
    def alone(self):
        """Opens a context in which variables start with this worker's own values.

        It is for temporary variables, and for variables that only one worker makes.
        """
        before, self._alone = self._alone, True
        try:
            yield
        finally:
            self._alone = before

    def state_of_gradients(self, variables):
        """Returns the compressor's state for the gradients of variables, TensorFlow's or Keras's."""
        compressed = self._cross_device_ops.compressed
        if compressed is None:
            return []
        self.name_variables(variables)
        return compressed.state_of([_whole(each) for each in variables])

    def name_variables(self, variables):
        """Tells the compressor the full names of Keras's variables.

        TensorFlow knows only the last part of a name.
        """
        compressed = self._cross_device_ops.compressed
        for variable in variables if compressed is not None else ():
            if hasattr(variable, "path"):
                compressed.name(_whole(variable), variable.path)

    def share_of_batch(self):
        """Returns this replica's rows over the mean of all replicas' rows, [] float64; in a replica function.

        Returns None if the value is always 1.
        """
        return self._runs.rows.share()

    def _make_input_fn_iterator(
        self, input_fn, replication_mode=tf.distribute.InputReplicationMode.PER_WORKER
    ):
        """Returns the iterator for Estimator.

        Each batch is for one replica; `input_fn` itself may shard the data.
        """
        iterator = super()._make_input_fn_iterator(
            self._distributor.of_this_worker(input_fn), replication_mode
        )
        return iterator if self._workers.now.size == 1 else EndsTogether(iterator, self._workers)

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
        return compat.regroup(tuple(value_fn(context) for context in contexts), always_wrap=True)

    def _reduce_to(self, reduce_op, value, destinations, options):
        del options
        return self._runs.shared_by_all(self._reductions.reduce(reduce_op, value, destinations))

    def _batch_reduce_to(self, reduce_op, value_destination_pairs, options):
        del options
        if self._of_step is None or self._runs.step is not None:
            return self._runs.shared_by_all(self._reductions.batch_reduce(reduce_op, value_destination_pairs))
        pairs = [self._of_loop(reduce_op, value, where) for value, where in value_destination_pairs]
        return self._runs.shared_by_all(self._reductions.batch_reduce(reduce_op, pairs))

    def _of_loop(self, reduce_op, value, where):
        """Returns what a loop adds up, and where it goes.

        In a local step a sum of floats counts this worker's part once for each worker, because losses of loops are divided by the
        rows of all workers.
        """
        is_of_loss = is_gradient(reduce_op, value, where)
        if is_of_loss:
            self._require_averaged(compat.whole_variable(where))
        is_part = is_of_loss or (reduce_op == tf.distribute.ReduceOp.SUM and is_float(value))
        return (scaled(value, self._workers.size) if is_part and self.is_in_local_step else value), where

    def _require_averaged(self, variable):
        if not self.is_in_local_step:
            raise OptionsError(
                "this strategy has local_steps, but a loop with strategy.run, or an Estimator, applies gradients outside of "
                "`with strategy.local_step(model):`; use that context for each step, or fit, or leave local_steps out"
            )
        if not any(variable is each for each in self._averaged):
            raise OptionsError(
                f"a local step trains variable {variable.name!r}, which belongs to no model that strategy.local_step was given, "
                "so it would not be averaged; give it all models that the step trains, local_step(a, b)"
            )

    @property
    def is_in_local_step(self):
        """Whether this worker takes a step of a loop by itself."""
        return self._averaged is not None

    @contextlib.contextmanager
    def local_loop_step(self, count_run, averaged):
        """Opens a context in which this worker takes a step of a loop by itself.

        Args:
            count_run: is called for each call of `strategy.run`, with the rows.
            averaged: the variables that the step may train.
        """
        self._averaged = list(averaged)
        try:
            with self._runs.counted(count_run):
                yield
        finally:
            self._averaged = None

    def _update(self, var, fn, args, kwargs, group):
        if not isinstance(var, tf.distribute.DistributedValues):
            raise ValueError(
                f"variable {var.name!r} of shape {var.shape} was made outside of this strategy's scope, and cannot be updated "
                "on all replicas; make models and optimizers inside `with strategy.scope():`"
            )
        return super()._update(var, fn, args, kwargs, group)

    def _batch_gather_to(self, value_destination_pairs, axis, options=None):
        """Gathers the values that replicas pass to `all_gather`.

        Raises:
            OptionsError: the step is local.
        """
        if self._of_step is not None and self._of_step.is_alone:
            raise OptionsError(
                "a local step does not have the rows of the other workers, which all_gather and tfs.joint_rows need; leave out "
                "local_steps=, or compute the loss from the rows of this worker alone"
            )
        pairs = [(self._reductions.on_each_replica(value), where) for value, where in value_destination_pairs]
        gathered = super()._batch_gather_to(
            [
                (value, value if isinstance(value, tf.distribute.DistributedValues) else where)
                for value, where in pairs
            ],
            axis,
            options,
        )
        return self._runs.shared_by_all(gathered)

    def _gather_to_implementation(self, value, destinations, axis, options):
        del options
        return self._runs.shared_by_all(self._reductions.gather(value, destinations, axis))


def _whole(variable: Variable) -> Optional[tf.Variable]:
    """Returns TensorFlow's distributed variable behind a variable, also for a variable of Keras 3."""
    return compat.whole_variable(variable if isinstance(variable, tf.Variable) else variable.value)


def _is_metric(variable: tf.Variable) -> bool:
    """Returns True if each replica has its own value of the variable, and a read returns the sum."""
    return (
        compat.is_sync_on_read_variable(variable)
        and not variable.trainable
        and variable.dtype.is_floating
        and variable.aggregation != tf.VariableAggregation.MEAN
    )
