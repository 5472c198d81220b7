"""The mechanism behind `CollectiveAllReduceStrategy`: mirrored variables on local devices, values shared between workers."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Optional, Sequence

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies._tf.replica_call import LiftedFunctions, after_arrival, run_on_only_device
from tf_strategies.collective.exchange.cross_device import CollectiveCrossDeviceOps, checked_axis
from tf_strategies.collective.input.datasets import DatasetDistributor
from tf_strategies.collective.input.uneven_batches import EmptyBatchGuard
from tf_strategies.collective.op_seeds import op_seeds_of_worker
from tf_strategies.collective.sessions.replica_gradients import apart
from tf_strategies.collective.sessions.session_creator import GroupSessionCreator
from tf_strategies.collective.sessions.session_input import EndsTogether
from tf_strategies.collective.variables.embedding_table import look_up_in_place
from tf_strategies.collective.variables.initial_value import initial_value_from_first_worker
from tf_strategies.collective.variables.moving_statistics import ReplicaStatistics
from tf_strategies.collective.variables.worker_variable import keep_saving_local
from tf_strategies.compression import Compressor
from tf_strategies.keras.joint_step import JointStep
from tf_strategies.options import CommunicationOptions
from tf_strategies.session_graphs.coordinator import in_session_graph, is_coordinated, make_sessions_with
from tf_strategies.session_graphs.kinds import adapt
from tf_strategies.session_graphs.session_config import show_devices
from tf_strategies.session_graphs.train_op import followed_by

__all__ = ["CollectiveAllReduceExtended"]


class CollectiveAllReduceExtended(compat.MirroredExtended):
    """TensorFlow's mirrored strategy over this worker's devices, stretched over all workers.

    Args:
        strategy: the strategy this belongs to.
        group: the workers.
        options: how they communicate.
        compressor: what makes gradients smaller on the way; None for nothing.
        devices: this worker's devices; None for all its GPUs, or its CPU.
        cluster_resolver: what `strategy.cluster_resolver` shows.
    """

    # TensorFlow's coordinator starts no server where there is one: the group listens at this task's address.
    _std_server_started = True

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        *,
        group,
        options: CommunicationOptions,
        compressor: Optional[Compressor],
        devices: Optional[Sequence[str]],
        cluster_resolver: tf.distribute.cluster_resolver.ClusterResolver,
    ) -> None:
        self._workers = group
        self._cluster_resolver = cluster_resolver
        super().__init__(
            strategy,
            devices=devices,
            cross_device_ops=CollectiveCrossDeviceOps(group, options.bytes_per_pack, compressor),
        )
        self._distributor = DatasetDistributor(group, len(self._devices))
        self._guard = EmptyBatchGuard(group, len(self._devices))
        self._metrics: list = []
        self._lifted = LiftedFunctions(strategy)
        self._replicas_run = False
        self._make_step = None
        self._step = None
        self._shapes_are_agreed = False
        self._alone = False
        self._is_coordinated = False
        self.statistics = ReplicaStatistics(
            replicas=self._num_replicas_in_sync,
            share=self._guard.share,
            sum_between_workers=self._cross_device_ops.sum_between_workers,
        )

    @property
    def _num_replicas_in_sync(self) -> int:
        return self._workers.size * len(self._devices)

    def _in_multi_worker_mode(self) -> bool:
        return self._workers.size > 1

    # KerasTuner names a worker's temporary folder by these, as those of MultiWorkerMirroredStrategy.
    @property
    def _task_type(self) -> str:
        return self._cluster_resolver.task_type

    @property
    def _task_id(self) -> int:
        return self._cluster_resolver.task_id

    @property
    def experimental_between_graph(self) -> bool:
        return self._workers.size > 1

    @property
    def should_checkpoint(self) -> bool:
        return self._workers.rank == 0 and self._cluster_resolver.task_type != "evaluator"

    @property
    def should_save_summary(self) -> bool:
        return self.should_checkpoint

    def _get_replica_id_in_sync_group(self, replica_id: int) -> int:
        return self._workers.rank * len(self._devices) + replica_id

    def _get_local_replica_id(self, replica_id_in_sync_group: int) -> int:
        return replica_id_in_sync_group - self._workers.rank * len(self._devices)

    def _configure(self, session_config=None, cluster_spec=None, task_type=None, task_id=None) -> None:
        """Accepts what TensorFlow's own coordinator proposes; the group was formed from TF_CONFIG before."""
        del cluster_spec, task_type, task_id
        super()._configure(session_config)
        adapt(self._container_strategy())
        # Estimator's sessions share all variables after the chief has restored them; others share them as they are initialized.
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
        return True

    def _get_cross_device_ops(self, value):
        del value
        return self._cross_device_ops

    def _get_variable_creator_initial_value(self, replica_id, device, primary_var, **kwargs):
        is_shared_later = in_session_graph() and self._is_coordinated
        if replica_id == 0 and self._workers.size > 1 and not self._alone and not is_shared_later:
            return initial_value_from_first_worker(
                self._workers, kwargs["initial_value"], dtype=kwargs.get("dtype"), name=kwargs.get("name")
            )
        return super()._get_variable_creator_initial_value(replica_id, device, primary_var, **kwargs)

    def _create_variable(self, next_creator, **kwargs):
        belongs_to_another = kwargs.get("colocate_with") is not None
        if in_session_graph() and kwargs.get("trainable") is None:
            # TensorFlow takes None for False where it collects variables, and for True where it makes them.
            kwargs["trainable"] = kwargs.get("synchronization") != tf.VariableSynchronization.ON_READ
        variable = super()._create_variable(next_creator, **kwargs)
        if self._workers.size > 1:
            keep_saving_local(variable)
        if not belongs_to_another:
            self.statistics.adopt(variable)
            look_up_in_place(variable)
        if _is_metric(variable):
            self._metrics.append(weakref.ref(variable))
        return variable

    def _call_for_each_replica(self, fn, args, kwargs):
        lifted = self._lifted.get(fn)
        if lifted is not None:
            return lifted(*args, **kwargs)
        for_session = in_session_graph()
        fn = fn if for_session else compat.converted_by_autograph(fn)
        if self._replicas_run:
            return self._run_replicas(fn, args, kwargs)
        self._step = None if self._make_step is None else self._make_step()
        if self._step is not None:
            fn = self._step.within(fn)
        try:
            if self._num_replicas_in_sync == 1:
                return self._run_replicas(fn, args, kwargs)
            return self._run_all_replicas(fn, args, kwargs, for_session)
        finally:
            self._step = None

    def _run_all_replicas(self, fn, args, kwargs, for_session):
        self._metrics = [reference for reference in self._metrics if reference() is not None]
        metrics = [
            variable for variable in (reference() for reference in self._metrics) if variable is not None
        ]
        arrival = contextlib.nullcontext() if for_session else after_arrival((args, kwargs))
        self._replicas_run = True
        try:
            with op_seeds_of_worker(self._workers.rank), arrival:
                guarded = self._guard.watch(
                    fn,
                    (args, kwargs),
                    [] if for_session else metrics,
                    shapes_are_agreed=self._shapes_are_agreed or for_session,
                )
                watched = self.statistics.watch(guarded)
                result = self._run_replicas(watched, args, kwargs)
            if for_session:
                parts = self._container_strategy().experimental_local_results
                return followed_by(result, parts, self.statistics.agree)
            self.statistics.agree()
            return result
        finally:
            self._replicas_run = False
            self._guard.forget()
            self.statistics.forget()

    def _run_replicas(self, fn, args, kwargs):
        if len(self._devices) == 1:
            return run_on_only_device(self._container_strategy(), self._devices[0], fn, args, kwargs)
        return super()._call_for_each_replica(fn, args, kwargs)

    @contextlib.contextmanager
    def joint_steps(self, *, shapes_are_agreed, **how):
        """Opens a context in which replica functions are steps of Keras.

        Args:
            how: arguments of `JointStep`.
            shapes_are_agreed: batches of a static shape have that shape on all workers.
        """

        def make_step() -> JointStep:
            return JointStep(
                replicas=self._num_replicas_in_sync,
                shares=self._guard.shares,
                owns=lambda variable: isinstance(variable, tf.distribute.DistributedValues),
                local_replica=self._guard.local_replica,
                is_recording=compat.is_differentiating,
                **how,
            )

        before = self._make_step, self._shapes_are_agreed
        self._make_step, self._shapes_are_agreed = make_step, shapes_are_agreed
        try:
            yield
        finally:
            self._make_step, self._shapes_are_agreed = before

    @contextlib.contextmanager
    def alone(self):
        """Opens a context in which variables start with this worker's own values.

        It is for variables that are thrown away, or that only one worker makes.
        """
        before, self._alone = self._alone, True
        try:
            yield
        finally:
            self._alone = before

    def state_of_gradients(self, variables):
        """Returns what the compression of their gradients remembers of variables, TensorFlow's or Keras's."""
        compressed = self._cross_device_ops.compressed
        if compressed is None:
            return []
        self.name_variables(variables)
        return compressed.state_of([_whole(each) for each in variables])

    def name_variables(self, variables):
        """Tells the compression of gradients what Keras calls its variables; TensorFlow knows the last part alone."""
        compressed = self._cross_device_ops.compressed
        for variable in variables if compressed is not None else ():
            if hasattr(variable, "path"):
                compressed.name(_whole(variable), variable.path)

    def share_of_batch(self):
        """Returns this replica's rows over the mean of all replicas' rows, [] float64; in a replica function.

        None if the value is always 1.
        """
        return self._guard.share()

    def _make_input_fn_iterator(
        self, input_fn, replication_mode=tf.distribute.InputReplicationMode.PER_WORKER
    ):
        """Returns what Estimator takes batches from, those of one replica each; `input_fn` shards its data itself, if it does."""
        iterator = super()._make_input_fn_iterator(
            self._distributor.of_this_worker(input_fn), replication_mode
        )
        return iterator if self._workers.size == 1 else EndsTogether(iterator, self._workers)

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
        if not isinstance(value, tf.distribute.DistributedValues) and self._workers.size == 1:
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
        """Returns True if this reads a variable whose replicas average, as Keras 2 keeps batch-norm statistics.

        Such a read stays on this worker, so that one worker alone can save a model. Metrics are sums and reduced over all.
        """
        return (
            self._workers.size > 1
            and reduce_op == tf.distribute.ReduceOp.MEAN
            and compat.is_sync_on_read_variable(value)
        )

    def _batch_reduce_to(self, reduce_op, value_destination_pairs, options):
        del options
        reduced = [value for value, _ in value_destination_pairs]
        open_pairs = {
            position: (
                apart(self._summand(reduce_op, self._on_each_replica(value), where)),
                self._placed(where),
            )
            for position, (value, where) in enumerate(value_destination_pairs)
            if not self._is_joint(reduce_op, value)
        }
        sums = self._cross_device_ops.batch_reduce(reduce_op, list(open_pairs.values())) if open_pairs else []
        for position, total in zip(open_pairs, sums):
            reduced[position] = total
        return reduced

    def _is_joint(self, reduce_op, value) -> bool:
        """Returns True for the sum of gradients that are joint already, also if `train_step` asks for it itself."""
        if self._step is None or reduce_op != tf.distribute.ReduceOp.SUM:
            return False
        return self._step.is_joint(_parts(value))

    def _summand(self, reduce_op, value, where):
        """Returns what the local replicas add to a sum."""
        value = self._guard.contributions(value)
        if self._step is None or not _is_gradient(reduce_op, value, where):
            return value
        parts = _parts(value)
        if len(parts) != len(self._devices):
            return value
        summands = self._step.as_summands(parts, compat.whole_variable(where))
        if all(mine is given for mine, given in zip(summands, parts)):
            return value
        return compat.per_replica(tuple(summands))

    def _update(self, var, fn, args, kwargs, group):
        if not isinstance(var, tf.distribute.DistributedValues):
            raise ValueError(
                f"variable {var.name!r} of shape {var.shape} was made outside of this strategy's scope, and cannot be updated "
                "on all replicas; make models and optimizers inside `with strategy.scope():`"
            )
        return super()._update(var, fn, args, kwargs, group)

    def _placed(self, destinations):
        """Returns the tensor, placed on this worker's first replica if it has no device yet.

        A tensor in a graph may have no device yet.
        """
        device = destinations if isinstance(destinations, str) else getattr(destinations, "device", None)
        return self._devices[0] if device == "" else destinations

    def _batch_gather_to(self, value_destination_pairs, axis, options=None):
        """Gathers what replicas hand to `all_gather`."""
        pairs = [(self._on_each_replica(value), where) for value, where in value_destination_pairs]
        return super()._batch_gather_to(
            [
                (value, value if isinstance(value, tf.distribute.DistributedValues) else where)
                for value, where in pairs
            ],
            axis,
            options,
        )

    def _on_each_replica(self, value):
        """Returns a value for each replica: TensorFlow takes a tensor that all replicas hand over for one value."""
        if (
            isinstance(value, tf.distribute.DistributedValues)
            or len(self._devices) == 1
            or not self._replicas_run
        ):
            return value
        parts = []
        for device in self._devices:
            with tf.device(device):
                parts.append(tf.identity(value))
        return compat.per_replica(tuple(parts))

    def _gather_to_implementation(self, value, destinations, axis, options):
        del options
        axis = checked_axis(value, axis)
        if not isinstance(value, tf.distribute.DistributedValues) and self._workers.size == 1:
            return value
        return self._cross_device_ops._gather(value, destinations=self._placed(destinations), axis=axis)


def _parts(value) -> tuple:
    """Returns the parts of the local replicas."""
    return tuple(value.values) if isinstance(value, tf.distribute.DistributedValues) else (value,)


def _is_gradient(reduce_op, value, where) -> bool:
    """Returns True for a sum that goes to a variable, and is not formed of variables."""
    if reduce_op != tf.distribute.ReduceOp.SUM or isinstance(where, str):
        return False
    if compat.whole_variable(where) is None:
        return False
    return not any(compat.whole_variable(part) is not None for part in _parts(value))


def _whole(variable) -> Any:
    """TensorFlow's variable of all replicas, of that or one of Keras 3."""
    return compat.whole_variable(variable if isinstance(variable, tf.Variable) else variable.value)


def _is_metric(variable) -> bool:
    """Returns True if replicas add to the variable on their own, and it is summed when read."""
    return (
        compat.is_sync_on_read_variable(variable)
        and not variable.trainable
        and variable.dtype.is_floating
        and variable.aggregation != tf.VariableAggregation.MEAN
    )
