"""The part of the collective strategy that lets workers take steps by themselves."""

from __future__ import annotations

import contextlib
import json
from typing import Callable, Iterator, Optional, Sequence

import numpy as np
import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.collective.exchange.sums_beside import SumsBeside
from tf_strategies.collective.exchange.weight_sums import WeightSums
from tf_strategies.collective.worker_group import WorkerGroup
from tf_strategies.errors import OptionsError
from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.types import Model
from tf_strategies.local_sgd import LocalSGD
from tf_strategies.local_steps import LocalSteps
from tf_strategies.types import Structure

__all__ = ["LocalTraining"]


class LocalTraining(GroupStrategy):
    """Takes local steps if the strategy has them, and averages weights."""

    _group: WorkerGroup

    def _init_local_steps(self, options: Optional[LocalSGD]) -> None:
        self._local_steps: Optional[LocalSteps] = None
        self._takes_local_step = self._is_evaluating = False
        if options is not None:
            sums = WeightSums(self._group, self.extended.sum_between_workers, options.quantize)
            self._local_steps = LocalSteps(options, self, sums, SumsBeside(sums))

    @property
    def has_local_steps(self):
        return self._local_steps is not None

    @contextlib.contextmanager
    def local_step(self, *models: Model) -> Iterator[None]:
        """Opens a context for a step of a loop of your own: this worker takes it by itself.

        Call your function with `strategy.run` within it. The loss follows the convention of tf.distribute: the sum over the
        rows of a replica, divided by the rows of the global batch. Gradients are those of the mean over this worker's rows, and
        other sums over replicas count this worker's part once for each worker. At the end of the context the workers average
        their weights, if it is time.

        Args:
            models: the Keras models that the step trains. They must have their variables.

        Raises:
            OptionsError: the strategy has no `local_steps`, or has steps of warm-up, or a model has no variables yet, or this
                is called in a tf.function or in another `local_step`.
        """
        if self._local_steps is None:
            raise OptionsError("strategy.local_step needs a strategy with local_steps=")
        if not tf.executing_eagerly():
            raise OptionsError(
                "strategy.local_step counts steps in Python, so it cannot be used in a tf.function; put the tf.function into it"
            )
        if self.extended.is_in_local_step:
            raise OptionsError(
                "strategy.local_step is open already; give all models to one, local_step(a, b)"
            )
        counts = [self.call(self._local_steps.begin_loop_step, model) for model in models]
        weights = [weight for model in models for weight in self._local_steps.weights_of(model)]

        def count_run(rows: tf.Tensor) -> None:
            del rows
            for each in counts:
                each.add_run()

        with self.extended.local_loop_step(count_run, weights):
            yield
        for each in counts:
            each.end_loop_step()
        for model in models:
            self.trained(model)

    def average_weights(self, model: Model) -> None:
        """Makes the weights of a model, and the state of its optimizer, equal on all workers after local steps. A collective.

        `fit` does this at the end of each epoch. Call it on all workers after `train_on_batch` or a loop of your own, before you
        save the model, or set its weights.

        Raises:
            OptionsError: the model has not been trained, or took a step outside of `local_step`.
        """
        if self._local_steps is not None and not self._local_steps.knows(model):
            raise OptionsError(
                f"model {model.name!r} has not been trained by this strategy; give the model that fit or local_step was given"
            )
        self.make_equal(model)

    def counts_of_local_step(self, model: Model) -> Optional[Callable[[tf.Tensor], None]]:
        """Begins a step. Returns what counts its rows if it is local, otherwise None."""
        counts = None if self._local_steps is None else self.call(self._local_steps.begin_step, model)
        return None if counts is None else counts.add

    def note_equal_length(self, distributed):
        if self._local_steps is not None:
            compat.ask_who_has_data(distributed, False)

    def trained(self, model):
        if self._local_steps is None:
            return
        if not self._group.usable:  # a collective raises the reason at once, and the next average may be far
            self.call(self.sums_over_workers, [tf.zeros([1])])
        self.call(self._local_steps.end_step, model)

    def epoch_trained(self, model):
        if self._local_steps is None or self._is_evaluating:
            return super().epoch_trained(model)
        has_changed = self.call(self._local_steps.make_equal, model)
        return self._mean_logs if has_changed else super().epoch_trained(model)

    def evaluates(self, model):
        if self._local_steps is not None:
            self.call(self._local_steps.average_for, model)

    @contextlib.contextmanager
    def whole_data(self):
        before, self._is_evaluating = self._is_evaluating, True
        try:
            yield
        finally:
            self._is_evaluating = before

    def make_equal(self, model):
        if self._local_steps is not None:
            self.call(self._local_steps.make_equal, model)

    def is_between_averages(self, model):
        return self._local_steps is not None and self._local_steps.is_in_round(model)

    def begin_local_steps_again(self, models):
        if self._local_steps is not None:
            self._local_steps.begin_again(models)

    def models_that_differ(self):
        return () if self._local_steps is None else self._local_steps.models_that_differ()

    def state_of_local_steps(self, model):
        return () if self._local_steps is None else self._local_steps.velocities(model)

    def sums_over_workers(self, values: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
        """Returns the sum of each tensor over workers. A collective."""
        return self.extended.sum_between_workers(values)

    def _mean_logs(self, logs: Structure) -> Structure:
        """Returns logs in which numbers that differ between workers are replaced by their mean. A collective."""
        flat = tf.nest.flatten(logs)
        places = [
            i for i, each in enumerate(flat) if np.ndim(each) == 0 and np.asarray(each).dtype.kind == "f"
        ]
        mine = [float(flat[i]) for i in places]
        everyone = [json.loads(text) for text in self.exchange(json.dumps(mine), "logs of local steps")]
        for i, values in zip(places, zip(*everyone)):
            if len(set(values)) > 1:
                flat[i] = float(np.mean(values))
        return tf.nest.pack_sequence_as(logs, flat)
