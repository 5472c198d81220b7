"""Runs functions on this worker's replicas, together with those of all other workers."""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import Any, Callable, ContextManager, Iterator, List, Optional, Sequence, Union

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies._tf.replica_call import LiftedFunctions, after_arrival, run_on_only_device
from tf_strategies.collective.input.uneven_batches import BatchRows
from tf_strategies.collective.op_seeds import op_seeds_of_worker
from tf_strategies.collective.variables import averaged_states, summed_states
from tf_strategies.collective.variables.averaged_states import rows_in
from tf_strategies.collective.variables.moving_statistics import ReplicaStatistics
from tf_strategies.collective.variables.summed_states import what_sets
from tf_strategies.collective.variables.write_warnings import WriteWarnings
from tf_strategies.collective.worker_group import Collectives
from tf_strategies.keras.joint_step import JointStep
from tf_strategies.native.instances import replicas_run_here
from tf_strategies.row_checks import LossMeans, SharedTensors
from tf_strategies.session_graphs.coordinator import in_session_graph
from tf_strategies.session_graphs.train_op import followed_by
from tf_strategies.types import Kwargs, Structure

__all__ = ["ReplicaRuns"]

_Run = Callable[[Callable[..., Structure], Sequence[Structure], Kwargs], Structure]


class ReplicaRuns:
    """Runs replica functions, one at a time.

    Args:
        strategy: the strategy of the replicas.
        group: the workers.
        devices: this worker's devices, one for each local replica.
        sum_between_workers: as for `ReplicaStatistics`.
        alone: opens a context in which this worker is the only one of the group.

    Attributes:
        rows: knows the number of rows of each replica's batch.
        statistics: the variables that replicas average.
        step: the running step of Keras; None outside of steps.
        are_running: whether the replicas of all workers are running a replica function now.
    """

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        group: Collectives,
        devices: Sequence[str],
        sum_between_workers: Callable[..., List[tf.Tensor]],
        alone: Callable[[], ContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._strategy = weakref.ref(strategy)
        self._group = group
        self._devices = devices
        self._alone = alone
        self._lifted = LiftedFunctions(strategy)
        self._metrics: List[weakref.ref[tf.Variable]] = []
        self._make_step: Optional[Callable[[], JointStep]] = None
        self._shapes_are_agreed = False
        self._count_rows: Optional[Callable[[tf.Tensor], None]] = None
        self.rows = BatchRows(group, len(devices))
        self.statistics = ReplicaStatistics(
            replicas=self._replicas_in_graph,
            may_have_others=lambda: group.may_have_others or len(devices) > 1,
            share=self.rows.share,
            sum_between_workers=sum_between_workers,
        )
        self._shared = SharedTensors()
        who = {"replicas": lambda: self._replicas, "is_first": lambda: group.now.rank == 0}
        self._losses = LossMeans(shared=self._shared, **who)
        self._summed = WriteWarnings(
            variables=self._summed_metrics, fault=what_sets, message=summed_states.MESSAGE, **who
        )
        self._averaged = WriteWarnings(
            variables=self.statistics.averaged,
            fault=lambda write: rows_in(write, self._shared),
            message=averaged_states.MESSAGE,
            **who,
        )
        self.step: Optional[JointStep] = None
        self.are_running = False

    @property
    def _replicas(self) -> int:
        return self._group.now.size * len(self._devices)

    def _replicas_in_graph(self) -> Union[int, tf.Tensor]:
        return self._group.size_in_graph() * len(self._devices)

    def shared_by_all(self, results: Structure) -> Structure:
        """Notes that the results of a collective have the rows of all replicas, and returns them."""
        if self.are_running and not tf.executing_eagerly():
            self._shared.add(results)
        return results

    def keep_metric(self, variable: tf.Variable) -> None:
        """Restores a metric's variable on replicas that have no rows in a batch."""
        self._metrics.append(weakref.ref(variable))

    def call(
        self, fn: Callable[..., Structure], args: Sequence[Structure], kwargs: Kwargs, run_on_devices: _Run
    ) -> Structure:
        """Runs a function on each local replica. Returns the results.

        Args:
            fn: the function.
            args: the arguments. Per-replica values have a value for each replica.
            kwargs: the keyword arguments.
            run_on_devices: runs a function with these arguments on several devices.
        """
        lifted = self._lifted.get(fn)
        if lifted is not None:
            return lifted(*args, **kwargs)
        run = self._run_on_only_device if len(self._devices) == 1 else run_on_devices
        for_session = in_session_graph()
        fn = fn if for_session else compat.converted_by_autograph(fn)
        if self.are_running:
            return run(fn, args, kwargs)
        with contextlib.nullcontext() if self._count_rows is None else self._alone():
            self.step = None if self._make_step is None else self._make_step()
            if self.step is not None:
                fn = self.step.within(fn)
            try:
                if self._replicas == 1 and self._count_rows is None:
                    return run(fn, args, kwargs)
                return self._run_with_other_replicas(run, fn, args, kwargs, for_session)
            finally:
                self.step = None

    @contextlib.contextmanager
    def joint_steps(
        self,
        *,
        shapes_are_agreed: bool,
        count_rows: Optional[Callable[[tf.Tensor], None]] = None,
        may_compare_rows: Callable[[], bool] = lambda: False,
        **how: Any,
    ) -> Iterator[None]:
        """Opens a context in which replica functions are steps of Keras.

        Args:
            shapes_are_agreed: whether batches of a static shape have this shape on all workers.
            count_rows: takes the rows of a step, [] int64, which this worker then takes by itself. None for steps of all
                workers.
            may_compare_rows: returns whether code of the user computes the loss.
            how: further arguments of `JointStep`.
        """

        def make_step() -> JointStep:
            return JointStep(
                replicas=self._replicas,
                replicas_in_graph=self._replicas_in_graph,
                shares=self.rows.shares,
                owns=lambda variable: isinstance(variable, tf.distribute.DistributedValues),
                local_replica=self.rows.local_replica,
                is_recording=compat.is_differentiating,
                look_at_loss=functools.partial(self._losses.look_at, may_compare_rows=may_compare_rows),
                look_at_log=functools.partial(self._losses.look_at_log, may_compare_rows=may_compare_rows),
                look_at_metric=self._losses.look_at_metric,
                trust=self._shared.add,
                **how,
            )

        before = self._make_step, self._shapes_are_agreed, self._count_rows
        self._make_step, self._shapes_are_agreed, self._count_rows = make_step, shapes_are_agreed, count_rows
        try:
            yield
        finally:
            self._make_step, self._shapes_are_agreed, self._count_rows = before

    @contextlib.contextmanager
    def counted(self, count_rows: Callable[[tf.Tensor], None]) -> Iterator[None]:
        """Opens a context in which this worker takes steps of a loop by itself; `count_rows` as for `joint_steps`."""
        before, self._count_rows = self._count_rows, count_rows
        try:
            yield
        finally:
            self._count_rows = before

    def _run_with_other_replicas(
        self,
        run: _Run,
        fn: Callable[..., Structure],
        args: Sequence[Structure],
        kwargs: Kwargs,
        for_session: bool,
    ) -> Structure:
        arrival = contextlib.nullcontext() if for_session else after_arrival((args, kwargs))
        self.are_running = True
        if not for_session:
            replicas_run_here()
        try:
            with op_seeds_of_worker(self._group.now.rank), arrival:
                watched = self.rows.watch(
                    self.statistics.watch(self._summed.watch(self._averaged.watch(fn))),
                    (args, kwargs),
                    [] if for_session else self._kept_finite(),
                    shapes_are_agreed=self._shapes_are_agreed or for_session,
                    may_have_changed=self.statistics.may_have_changed,
                )
                result = run(watched, args, kwargs)
            if for_session:
                parts = self._strategy().experimental_local_results
                return followed_by(result, parts, self.statistics.agree)
            self.statistics.agree()
            if self._count_rows is not None:
                self._count_rows(self.rows.of_worker())
            return result
        finally:
            self.are_running = False
            self.rows.forget()
            self.statistics.forget()
            self._shared.clear()

    def _kept_finite(self) -> List[tf.Variable]:
        """Returns the variables that a batch without rows must not change to NaN.

        In a local step these are the statistics, too: no other replica has a value for them.
        """
        alone = [] if self._count_rows is None else self.statistics.known()
        return [*self._living_metrics(), *alone]

    def _summed_metrics(self) -> List[tf.Variable]:
        return [each for each in self._living_metrics() if each.aggregation == tf.VariableAggregation.SUM]

    def _living_metrics(self) -> List[tf.Variable]:
        self._metrics = [reference for reference in self._metrics if reference() is not None]
        variables = (reference() for reference in self._metrics)
        return [variable for variable in variables if variable is not None]

    def _run_on_only_device(
        self, fn: Callable[..., Structure], args: Sequence[Structure], kwargs: Kwargs
    ) -> Structure:
        return run_on_only_device(
            self._strategy(), self._devices[0], fn, args, kwargs, replica=self._group.now.rank
        )
