"""Implements the parameter-server strategies: one replica on this worker, variables and their updates on the servers."""

from __future__ import annotations

import contextlib
import functools
import re
import weakref
from typing import Callable, ContextManager, Iterator, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies._tf.replica_call import LiftedFunctions, after_arrival
from tf_strategies.keras.ownership import uncast
from tf_strategies.keras.types import Model
from tf_strategies.parameter_server.access import ServerAccess
from tf_strategies.parameter_server.cluster.servers import Servers
from tf_strategies.parameter_server.input import DatasetDistributor, ShareOfBatch
from tf_strategies.parameter_server.joint_steps import JointSteps
from tf_strategies.parameter_server.sessions.session_creator import session_creator
from tf_strategies.parameter_server.sessions.session_variable import SessionVariables
from tf_strategies.parameter_server.updates.step import StepRows, current_step, new_step
from tf_strategies.parameter_server.updates.step_recorder import StepRecorder
from tf_strategies.parameter_server.updates.update_rule import UpdateRule
from tf_strategies.parameter_server.variables.parts import Part
from tf_strategies.parameter_server.variables.placement import Placement
from tf_strategies.parameter_server.variables.server_variable import ServerVariable
from tf_strategies.session_graphs.coordinator import in_session_graph, make_sessions_with
from tf_strategies.session_graphs.effects import taking_effect, with_effects
from tf_strategies.session_graphs.iterators import InputFnIterator
from tf_strategies.types import Structure

__all__ = ["ParameterServerExtended"]

_RANDOM_STATES = ("seed_generator_state", "StateVar")  # the names in Keras 3 and in tf.random.Generator
# Keras numbers the layers of each class within a process, and one worker may have made more models than
# others.
_NUMBERS = re.compile(r"_\d+(?=[/_]|$)")
_LEARNING_RATE = "learning_rate"  # the name in all versions of Keras
_PASSED_ON = ("trainable", "synchronization", "aggregation", "constraint")


class ParameterServerExtended(compat.OneDeviceExtended):
    """Places variables on servers.

    A step reads each variable once, computes on the worker, and updates it on its server.

    Args:
        strategy: the strategy this belongs to.
        servers: the servers, and this worker's rank among the workers that use them.
        placement: decides which server holds a variable.
        rule: the update rule: when and how gradients change variables.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        *,
        servers: Servers,
        placement: Placement,
        rule: UpdateRule,
    ) -> None:
        super().__init__(strategy, servers.device)
        self._servers = servers
        self._placement = placement
        self.rule = rule
        self._made = 0
        self._session_variables = SessionVariables(servers, self._place)
        self._alone = False
        self._metrics: List[weakref.ref[tf.Variable]] = []
        self._own: List[weakref.ref[tf.Variable]] = []
        self.recorder: Optional[StepRecorder] = None
        self._lifted = LiftedFunctions(strategy)
        self.steps = JointSteps(servers.rank, rule.replicas_in_sync)
        self.distributor = DatasetDistributor(
            servers.rank, servers.size, splits_batches=rule.replicas_in_sync > 1
        )
        self.access = ServerAccess(servers.transport, rule, servers.call)

    @property
    def _num_replicas_in_sync(self) -> int:
        return self.rule.replicas_in_sync

    def _get_replica_id_in_sync_group(self, replica_id: int) -> int:
        return self._servers.rank if self.rule.replicas_in_sync > 1 else replica_id

    def _get_local_replica_id(self, replica_id_in_sync_group: int) -> int:
        del replica_id_in_sync_group
        return 0

    # TensorFlow's coordinator reads these: every worker trains, and none needs another server.
    experimental_between_graph = True
    _std_server_started = True

    @property
    def parameter_devices(self) -> Tuple[str, ...]:
        return tuple(self._servers.devices)

    @property
    def should_checkpoint(self) -> bool:
        return self._servers.rank == 0

    @property
    def should_save_summary(self) -> bool:
        return self._servers.rank == 0

    def _configure(self, session_config=None, cluster_spec=None, task_type=None, task_id=None) -> None:
        """Ignores the settings of TensorFlow's coordinator, because TF_CONFIG has already named the servers."""
        make_sessions_with(functools.partial(session_creator, self._servers))

    def _create_variable(self, next_creator, **kwargs):
        beside = kwargs.pop("colocate_with", None)
        beside = beside if beside is None else uncast(beside)
        if self._alone or not _belongs_on_servers(kwargs):
            with tf.device(self._device):
                made = next_creator(**kwargs)
            if _is_sum_of_metric(kwargs):
                self._metrics = [*_alive(self._metrics), weakref.ref(made)]
            if not self._alone:
                self._own = [*_alive(self._own), weakref.ref(made)]
            return made
        passed_on = {key: kwargs[key] for key in _PASSED_ON if kwargs.get(key) is not None}
        if in_session_graph():
            return self._session_variables.make(
                lambda: _initial_value(kwargs),
                kwargs.get("name"),
                kwargs.get("collections"),
                beside,
                strategy=self._container_strategy(),
                **passed_on,
            )
        with tf.init_scope():
            initial = _initial_value(kwargs)
            name = kwargs.get("name") or "Variable"
            made = ServerVariable(
                self._parts(name, initial, beside),
                shape=initial.shape,
                dtype=initial.dtype,
                name=name,
                strategy=self._container_strategy(),
                **passed_on,
            )
            made.is_learning_rate = name.rpartition("/")[2] == _LEARNING_RATE and initial.shape.rank == 0
            if beside is None:
                self.access.fetch_with_others(made)
            return made

    def joint_steps(self, model: Model, *, trains: bool) -> ContextManager[None]:
        """Opens a context in which replica functions are steps of Keras.

        Args:
            model: the model whose steps run.
            trains: whether they are steps of `fit`.
        """
        return self.steps.of(model, trains=trains)

    def own_variables(self) -> List[tf.Variable]:
        """Returns the variables that are not on servers: sums of metrics, and the states of random numbers."""
        return [variable for variable in (each() for each in self._own) if variable is not None]

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Opens a context in which variables are made in this process.

        It is for temporary variables, and for variables that only one worker makes.
        """
        before, self._alone = self._alone, True
        try:
            yield
        finally:
            self._alone = before

    def _parts(self, name: str, initial: tf.Tensor, beside: Optional[tf.Variable]) -> List[Part]:
        number, self._made = self._made, self._made + 1
        placed = self._place(name, initial.shape, initial.dtype, beside)
        name = _NUMBERS.sub("", name)
        described = f"{name}: {initial.dtype.name}{initial.shape}, (server, rows) {placed}"
        self._servers.agree(f"variable {number}", described)
        parts: List[Part] = []
        start = 0
        for server, rows in placed:
            piece = initial if len(placed) == 1 else initial[start : start + rows]
            variable = self._servers.shared_variable(server, f"{number}/{len(parts)}/{name}", piece)
            parts.append(Part(variable, self._servers.devices[server], start, rows))
            start += rows
        return parts

    def _place(
        self, name: str, shape: tf.TensorShape, dtype: tf.DType, beside: Optional[tf.Variable]
    ) -> List[Tuple[int, int]]:
        if not isinstance(beside, ServerVariable):
            return self._placement.place(name, shape, dtype)
        servers = [self._servers.devices.index(part.device) for part in beside.parts]
        rows = [part.rows for part in beside.parts]
        if not shape.rank or shape[0] != sum(rows):
            servers, rows = servers[:1], [shape[0] if shape.rank else 0]
        return self._placement.place_with(servers, rows, shape, dtype)

    def _validate_colocate_with_variable(self, colocate_with_variable) -> None:
        """Accepts every variable of this strategy."""

    def _call_for_each_replica(self, fn, args, kwargs):
        args, rows = _with_rows(args)
        lifted = self._lifted.get(fn)
        if lifted is not None:
            return lifted(*args, **kwargs)
        arrival: ContextManager = contextlib.nullcontext()
        if not in_session_graph():  # inside it, initial values that are tensors would wait for a batch
            fn, arrival = compat.converted_by_autograph(fn), after_arrival((args, kwargs))
        fn = self.steps.joined(fn)
        if rows is not None and self._servers.rank:
            fn = self._counting_once(fn, rows)
        with new_step() as step, arrival:
            step.rows = rows
            replica = _Replica(self._container_strategy(), self._get_replica_id_in_sync_group(0))
            with replica, tf.device(self._device), self.steps.noting_losses():
                result = fn(*args, **kwargs)
            if self.recorder is not None and step.pending:
                self.recorder.note_step(*self.rule.before_reading(step))
            if not in_session_graph():
                self.rule.end_step(step)
                return result
            self.rule.leave_out(step, result)
            with taking_effect() as effects:
                self.rule.end_step(step)
        return with_effects(result, effects)

    def _counting_once(self, fn: Callable[..., Structure], rows: StepRows) -> Callable[..., Structure]:
        """Returns a step that leaves metrics as they were if another worker has the same rows."""

        @tf.autograph.experimental.do_not_convert
        def run(*args, **kwargs):
            metrics = [each for each in (reference() for reference in self._metrics) if each is not None]
            before = [(each, each.read_value()) for each in metrics]
            result = fn(*args, **kwargs)
            for variable, value in before:
                variable.assign(tf.where(rows.are_copied, value, variable.read_value()))
            return result

        return run

    @property
    def leaves_rates_to_first(self) -> bool:
        """Whether another worker sets learning rates: in `fit`, whose callbacks all workers run, the first one."""
        return self._servers.rank > 0 and self.distributor.is_fitting

    def _update(self, var, fn, args, kwargs, group):
        var = uncast(var)
        if not isinstance(var, ServerVariable):
            return super()._update(var, fn, args, kwargs, group)
        results = self.rule.update(self.access, var, fn, tuple(args), dict(kwargs or {}))
        return tf.group(results) if group else results

    def _experimental_distribute_dataset(self, dataset, options):
        return self.distributor.distribute(dataset, options)

    def _make_input_fn_iterator(self, input_fn, replication_mode=None):
        del replication_mode
        with tf.device(self._device):
            return InputFnIterator(input_fn, self.distributor.context)

    def _distribute_datasets_from_function(self, dataset_fn, options):
        del options
        return dataset_fn(self.distributor.context)


class _Replica(tf.distribute.ReplicaContext):
    """The replica context. In a step, workers exchange only updates of variables."""

    def merge_call(self, merge_fn, args=(), kwargs=None):
        step = current_step()
        with contextlib.nullcontext() if step is None else step.merging():
            return super().merge_call(merge_fn, args, kwargs)

    def all_reduce(self, reduce_op, value, options=None):
        self._require_alone("all_reduce")
        return super().all_reduce(reduce_op, value, options)

    def all_gather(self, value, axis, options=None):
        self._require_alone("all_gather")
        return super().all_gather(value, axis, options)

    def _require_alone(self, what: str) -> None:
        if self.strategy.extended._num_replicas_in_sync > 1:
            raise NotImplementedError(
                f"{what} within a step is not supported: SyncReplicasStrategy adds up only gradients, when "
                f"they are applied; use CollectiveAllReduceStrategy, also for BatchNormalization(synchronized=True)"
            )


def _alive(references: Sequence[weakref.ref[tf.Variable]]) -> List[weakref.ref[tf.Variable]]:
    return [each for each in references if each() is not None]


def _with_rows(args: Tuple[Structure, ...]) -> Tuple[Tuple[Structure, ...], Optional[StepRows]]:
    """Returns the arguments of a step with the rows in place of a `ShareOfBatch`, and the numbers of rows; None if unknown."""
    if not args or not isinstance(args[0], ShareOfBatch):
        return args, None
    batch, total, is_copied = args[0]
    own = tf.shape(tf.nest.flatten(batch)[0], out_type=tf.int64)[0]
    return (batch, *args[1:]), StepRows(own, total, is_copied)


def _belongs_on_servers(kwargs) -> bool:
    """Returns False for variables that stay on the worker: sums of metrics, random states, and counters of Keras 2."""
    aggregation = kwargs.get("aggregation")
    name = (kwargs.get("name") or "").rpartition("/")[2]
    counts_calls = not name and aggregation == tf.VariableAggregation.ONLY_FIRST_REPLICA
    local = tf.compat.v1.GraphKeys.LOCAL_VARIABLES in (kwargs.get("collections") or ())
    return (
        not _is_sum_of_metric(kwargs)
        and not counts_calls
        and not local
        and not name.startswith(_RANDOM_STATES)
    )


def _is_sum_of_metric(kwargs) -> bool:
    is_read_together = kwargs.get("synchronization") == tf.VariableSynchronization.ON_READ
    return is_read_together and kwargs.get("aggregation") != tf.VariableAggregation.MEAN


def _initial_value(kwargs) -> tf.Tensor:
    initial = kwargs["initial_value"]
    initial = initial() if callable(initial) else initial
    initial = getattr(initial, "wrapped_value", initial)
    dtype = kwargs.get("dtype")
    return tf.convert_to_tensor(initial, None if dtype is None else tf.as_dtype(dtype))
