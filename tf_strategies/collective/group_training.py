"""Trains Keras models on all workers of a group. Implements the interface of the Keras bridge."""

from __future__ import annotations

import contextlib
import logging
from typing import Callable, ContextManager, Dict, Hashable, Iterator, Optional, Sequence, Set

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.collective.exchange.agreement import exchange_texts, require_agreement
from tf_strategies.collective.input.following import BATCHES, batches_for
from tf_strategies.collective.local_training import LocalTraining
from tf_strategies.collective.shared_seed import SharedSeed, draw_seed
from tf_strategies.collective.values_of_worker import values_of_worker
from tf_strategies.elastic import ElasticFits
from tf_strategies.keras.drift import DriftCheck
from tf_strategies.keras.global_metrics import results_of_step
from tf_strategies.keras.own_code import has_own_code
from tf_strategies.keras.rate_scale import scaled_rates
from tf_strategies.keras.types import Optimizer
from tf_strategies.local_sgd import LocalSGD
from tf_strategies.native.errors import naming_lost_workers
from tf_strategies.options import Elastic

__all__ = ["GroupTraining"]

_log = logging.getLogger("tf_strategies")


class GroupTraining(LocalTraining):
    """The part of the collective strategy that Keras trains with."""

    def _init_training(
        self, step_losses: str, elastic: Optional[Elastic], local_steps: Optional[LocalSGD]
    ) -> None:
        self._step_losses = step_losses
        self._init_local_steps(local_steps)
        self._batch_is_per_worker = elastic is not None and elastic.batch == "per_worker"
        self._fits: Optional[ElasticFits[SharedSeed]] = None
        if elastic is not None and self._group.generation is not None:
            self._fits = ElasticFits(self, elastic, lambda seed: SharedSeed(*seed))
            if self.may_keep_functions:
                self._group.keep_functions()
        self._read: Dict[int, tf.Tensor] = {}  # sums of variables, by id of the variable
        self._agreed: Set[Hashable] = set()  # references to tensors that are equal on all workers
        self._stops: Callable[[bool], bool] = bool
        self._runs = ""
        self.began_with = self.size  # the workers for which the user has chosen the global batch
        self._as_batches: Callable[[tf.data.Dataset], tf.data.Dataset] = lambda dataset: dataset

    def state_of_gradients(self, variables):
        return self.extended.state_of_gradients(variables)

    def name_variables(self, variables):
        self.extended.name_variables(variables)

    @property
    def replicas_now(self):
        return self.extended.replicas_now

    def replicas_in_graph(self):
        return self.extended.replicas_in_graph()

    def replica_now(self):
        return self.extended.replica_now()

    def call(self, function, *args):
        with self._naming_lost_workers():
            return function(*args)

    def share_of_batch(self):
        # Without a tape the share has no effect, because evaluation scales a loss and scales it back; it
        # would only cost a message.
        return self.extended.share_of_batch() if compat.is_differentiating() else None

    @contextlib.contextmanager
    def joint_steps(self, model, data, *, trains, sums_logs):
        follows = trains and self._batch_follows_group
        scale = self.size / self.began_with if follows else 1.0
        with scaled_rates(scale), self._steps_of(model, data, trains=trains, sums_logs=sums_logs):
            yield data

    @contextlib.contextmanager
    def _steps_of(self, model, data, *, trains, sums_logs):
        if self._step_losses == "sum":
            yield
            return
        counts = self.counts_of_local_step(model) if trains else None
        steps = self.extended.joint_steps(
            count_rows=counts,
            is_agreed=lambda part: part.ref() in self._agreed,
            sums_logs=sums_logs,
            results=lambda: results_of_step(self, model),
            postpones=self.compresses or _accumulates(model.optimizer),
            may_compare_rows=lambda: trains and has_own_code(model),
            shapes_are_agreed=isinstance(data, tf.distribute.DistributedIterator),
        )
        before, self._takes_local_step = self._takes_local_step, counts is not None
        try:
            with steps:
                yield
        finally:
            self._takes_local_step = before

    @contextlib.contextmanager
    def reading_together(self, variables: Sequence[tf.Variable]) -> Iterator[None]:
        """Opens a context in which `reduce` returns sums of these variables that were computed in one message."""
        summed = [each for each in variables if _is_summed_when_read(each)]
        if summed and not self._read:
            pairs = [(each, self.extended.worker_devices[0]) for each in summed]
            sums = self.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, pairs)
            self._read = {
                id(each): self.experimental_local_results(total)[0] for each, total in zip(summed, sums)
            }
        try:
            yield
        finally:
            self._read = {}

    def require_agreement(self, what, text):
        require_agreement(self._group, what, text)

    def exchange(self, text, what):
        return exchange_texts(self._group, text, name=what)

    def of_worker(self, rank, value, what):
        if self._group.size == 1:
            return value
        with tf.device("CPU:0"):
            return self._group.broadcast(tf.identity(value), name=f"value of {what}", root=rank)

    def values_of_worker(self, rank, values, what):
        return values_of_worker(
            lambda value, number: self.of_worker(rank, value, f"{what}, message {number}"), values
        )

    def sum_over_workers(self, value, what):
        with tf.device("CPU:0"):
            value = tf.identity(value)
            return value if self._group.size == 1 else self._group.all_reduce([value], name=what)[0]

    @property
    def variables_made(self):
        return self.extended.variables_made

    @property
    def generation(self):
        return self._group.generation

    @property
    def is_elastic(self):
        return self._fits is not None

    def keep_fitting(self, model, arguments, fit):
        self.make_equal(model)
        return fit() if self._fits is None else self._fits.keep_fitting(model, arguments, fit)

    @property
    def batch_is_per_worker(self):
        return self._batch_is_per_worker

    @property
    def _batch_follows_group(self) -> bool:
        """Whether the running `fit` has batches with a number of rows for each worker."""
        return self._batch_is_per_worker and (self._fits is None or self._fits.can_continue)

    @contextlib.contextmanager
    def batches_of_fit(self, arrays, steps_per_epoch):
        if not self._batch_follows_group:
            yield ()
            return
        before, found = self._as_batches, []

        def as_batches(dataset: tf.data.Dataset) -> tf.data.Dataset:
            self._as_batches = before
            try:
                batches = batches_for(
                    dataset,
                    arrays(),
                    steps_per_epoch,
                    began_with=self.began_with,
                    workers=self.size,
                    distribute=self.experimental_distribute_dataset,
                )
            except ValueError:
                if self._fits is None:
                    return dataset  # the only worker, of which there will never be more
                raise
            found.append(batches)
            if not batches.are_as_given and self.rank == 0:
                _log.warning(BATCHES, batches.rows, batches.given, self.size / self.began_with)
            return batches.after([], [])

        self._as_batches = as_batches
        try:
            yield found
        finally:
            self._as_batches = before

    @property
    def can_reform(self):
        """Whether the survivors of a failure form the group again."""
        return self._group.can_reform

    @property
    def is_newcomer(self):
        """Whether this worker has started while the others train, and has not joined them yet."""
        return self._group.is_newcomer

    def join_fit(self, number):
        """Joins the others in a call of `fit`; see `ConnectedWorkers.join_fit`."""
        return self._group.join_fit(number)

    def step_ended(self):
        """Notes the end of a step of `fit`; see `ConnectedWorkers.step_ended`."""
        self._group.step_ended()

    def blame_newcomers(self, why):
        """Ends a group whose workers differ; see `ConnectedWorkers.blame_newcomers`."""
        self._group.blame_newcomers(why)

    def leave_because(self, why):
        """Leaves the group at once; see `ConnectedWorkers.leave_because`."""
        self._group.leave_because(why)

    def caught_up(self):
        """Notes that this worker has all variables of the others."""
        self._group.caught_up()

    def admit(self, fit):
        """Lets newcomers join this call of `fit`; see `ConnectedWorkers.admit`."""
        self._group.admit(fit)

    @contextlib.contextmanager
    def running_elastically(self, what):
        """Opens the context of a call of `fit` or `ElasticState.run`, which cannot be within another one."""
        if self._runs:
            raise RuntimeError(
                f"{what} was called within {self._runs} of the same strategy; call one after the other"
            )
        self._runs = what
        try:
            yield
        finally:
            self._runs = ""

    @property
    def may_keep_functions(self):
        """Whether functions can be used when the group has changed.

        Functions of local steps and of scaled rates hold numbers of the group that were read before. Those of several replicas
        and of compressed gradients hold the size.
        """
        is_plain = self._local_steps is None and not self._batch_is_per_worker
        return is_plain and not self.compresses and len(self.extended.worker_devices) == 1

    def suiting_functions(self, *, has_newcomers):
        """Returns a text for each function that was traced; see `WorkerGroup.suiting_functions`."""
        return self._group.suiting_functions(has_newcomers=has_newcomers) if self.may_keep_functions else None

    def rehearsing(self):
        """Opens the context in which a newcomer takes a step by itself; see `ConnectedWorkers.rehearsing`."""
        return self._group.rehearsing()

    def reuse_functions(self, can):
        """Lets functions that were traced for former groups be used; see `ConnectedWorkers.reuse_functions`."""
        self._group.reuse_functions(can)

    def let_leave(self, ranks):
        """Ends the group, so that some workers leave it; see `ConnectedWorkers.let_leave`."""
        self._group.let_leave(ranks)

    def has_ended(self):
        """Returns True if the group has failed; see `ConnectedWorkers.has_ended`."""
        return self._group.has_ended()

    def abandon(self, why=""):
        """Lets the survivors form the group without this worker."""
        self._group.abandon(why)

    def reform(self):
        """Becomes the strategy of the survivors; see `ConnectedWorkers.reform`."""
        reformed = self._group.reform()
        self._agreed.clear()
        self._read = {}
        return reformed

    def own_callbacks(self):
        return [DriftCheck(self), *([] if self._fits is None else self._fits.callbacks())]

    @contextlib.contextmanager
    def one_op_seed(self):
        def draw() -> SharedSeed:
            return draw_seed(self._group)

        seed = draw() if self._fits is None else self._fits.drawn(draw)
        with seed.opened():
            yield seed.number

    @contextlib.contextmanager
    def training(self) -> Iterator[None]:
        with self._naming_lost_workers(), self._group.training() as stops:
            before, self._stops = self._stops, stops
            try:
                yield
            finally:
                self._stops = before

    @contextlib.contextmanager
    def whole_data(self):
        with self._naming_lost_workers(), super().whole_data():
            yield

    def stops_training(self, wanted):
        return self._stops(wanted)

    def stopping_places(self):
        return self._group.training()

    def alone(self):
        return self.extended.alone()

    def agreed(self, results):
        self._agreed.update(part.ref() for part in tf.nest.flatten(results) if isinstance(part, tf.Tensor))
        return results

    def _naming_lost_workers(self) -> ContextManager[None]:
        return naming_lost_workers(lambda: not self._group.usable, lambda: self._group.failure)


def _accumulates(optimizer: Optimizer) -> bool:
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    return bool(getattr(optimizer, "gradient_accumulation_steps", None))


def _is_summed_when_read(variable: tf.Variable) -> bool:
    return compat.is_sync_on_read_variable(variable) and variable.aggregation == tf.VariableAggregation.SUM
