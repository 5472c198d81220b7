"""Decides which steps a worker takes by itself, and when the workers average their weights."""

from __future__ import annotations

import logging
import weakref
from typing import Callable, Optional

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.errors import OptionsError
from tf_strategies.keras.model_state import averaged_variables
from tf_strategies.keras.types import Model, Optimizer
from tf_strategies.local_sgd import LocalSGD
from tf_strategies.local_steps.averages import Averages, Sums
from tf_strategies.local_steps.leveling import Workers, make_equal

__all__ = ["LocalSteps"]

_log = logging.getLogger("tf_strategies")


class Counts:
    """Counts what this worker has done since the last average. Steps write it, also within graphs.

    Attributes:
        rows: the rows that it has trained with, [] float64.
        steps: the steps that it has taken, [] int64.
    """

    def __init__(self) -> None:
        with tf.init_scope(), tf.device("/device:CPU:0"):
            self.rows = compat.ResourceVariable(
                0.0, dtype=tf.float64, trainable=False, name="rows_since_average"
            )
            self.steps = compat.ResourceVariable(
                0, dtype=tf.int64, trainable=False, name="steps_since_average"
            )

    def add(self, rows: tf.Tensor) -> None:
        """Counts a step with so many rows."""
        with tf.device("/device:CPU:0"):
            self.rows.assign_add(tf.cast(rows, tf.float64), read_value=False)
            self.steps.assign_add(1, read_value=False)


class _Progress:
    """The progress of one model.

    Attributes:
        are_local: whether steps are local; None before the first one.
        optimizer: the one that has trained the model so far.
        differ: whether variables of the optimizer may differ between workers.
        in_round: whether a round has begun.
    """

    def __init__(self) -> None:
        self.counts = Counts()
        self.are_local: Optional[bool] = None
        self.optimizer: Callable[[], Optional[Optimizer]] = lambda: None
        self.differ = self.in_round = False
        self.calls = 0
        self.averages: Optional[Averages] = None


class LocalSteps:
    """The local steps of the models of a strategy.

    Args:
        options: when to average, and how.
        workers: all workers.
        sums: adds up over workers.
    """

    def __init__(self, options: LocalSGD, workers: Workers, sums: Sums) -> None:
        self._options, self._workers, self._sums = options, workers, sums
        self._models: weakref.WeakKeyDictionary[Model, _Progress] = weakref.WeakKeyDictionary()

    def require_loop(self, model: Model) -> None:
        """Raises an OptionsError if the local steps of a model cannot be those of a loop."""
        if self._options.warmup_steps:
            raise OptionsError(
                f"warmup_steps={self._options.warmup_steps} is for fit: a function of your own is traced once, and cannot change "
                "from synchronous to local steps; leave warmup_steps out"
            )
        if not model.built or not model.trainable_variables:
            raise OptionsError(
                f"model {model.name!r} has no variables yet; give it a keras.layers.Input, or call model.build(...), before "
                "strategy.local_step"
            )

    def begin_step(self, model: Model) -> Optional[Counts]:
        """Returns what counts the steps that follow if they are local, or None for ordinary steps."""
        progress = self._models.setdefault(model, _Progress())
        optimizer = getattr(model, "optimizer", None)
        if optimizer is not None and progress.optimizer() is not optimizer:
            self.average(model)
            progress.optimizer = weakref.ref(optimizer)
            progress.are_local = None  # `compile` has also dropped the train function
        if progress.are_local is None:
            has_variables = bool(model.built and model.trainable_variables)
            progress.are_local = has_variables and self._is_warm(model, progress)
        if not progress.are_local:
            return None
        if not progress.in_round:
            self._averages(model, progress).begin_round()
            progress.in_round = True
        return progress.counts

    def end_step(self, model: Model) -> None:
        """Averages the weights if it is time. Otherwise decides whether the next step is local."""
        progress = self._models[model]
        progress.calls += 1
        if progress.are_local:
            progress.differ = True
            if int(progress.counts.steps.numpy()) >= self._options.sync_every:
                self.average(model)
        elif self._is_warm(model, progress):
            progress.are_local = True
            model.train_function = None
            model.make_train_function()
            if self._options.warmup_steps and self._workers.rank == 0:
                _log.info("local steps begin after %d synchronous steps", _steps_of(model, progress))

    def average(self, model: Model) -> None:
        """Makes the weights equal on all workers, if one of them has taken a local step. A collective."""
        progress = self._models.get(model)
        if progress is None or not progress.in_round:
            return
        self._averages(model, progress).end_round()
        progress.counts.steps.assign(0)
        progress.in_round = False

    def average_all(self) -> None:
        """Makes the weights of all models equal on all workers. A collective."""
        for model in list(self._models):
            self.average(model)

    def make_equal(self, model: Model) -> bool:
        """Makes all variables of the model and its optimizer equal on all workers. A collective.

        Returns:
            Whether the model has taken local steps since the last call.
        """
        progress = self._models.get(model)
        if progress is None or not progress.differ:
            return False
        self.average(model)
        make_equal(self._workers, model)
        progress.differ = False
        return True

    def velocities(self, model: Model) -> list[tf.Variable]:
        """Returns the velocities of the outer optimizer. Makes them if they are missing."""
        return self._averages(model, self._models.setdefault(model, _Progress())).velocities

    def _averages(self, model: Model, progress: _Progress) -> Averages:
        """Returns what averages the variables of the model. They may change between rounds, when layers are frozen."""
        found = progress.averages
        if found is not None and progress.in_round:
            return found
        weights, statistics = averaged_variables(model)
        if found is None or not found.fits(weights, statistics):
            found = progress.averages = Averages(
                weights,
                statistics,
                progress.counts.rows,
                self._options,
                sums=self._sums,
                size=self._workers.size,
                before=found,
            )
        return found

    def _is_warm(self, model: Model, progress: _Progress) -> bool:
        return _steps_of(model, progress) >= self._options.warmup_steps


def _steps_of(model: Model, progress: _Progress) -> int:
    """Returns the steps that the optimizer has taken, or the calls of the train function if there is no optimizer."""
    iterations = getattr(getattr(model, "optimizer", None), "iterations", None)
    return progress.calls if iterations is None else int(iterations.numpy())
