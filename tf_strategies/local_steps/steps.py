"""Decides which steps a worker takes by itself, and when the workers average their weights."""

from __future__ import annotations

import logging
import weakref
from typing import Callable, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.errors import OptionsError
from tf_strategies.keras.fit_types import StepFunction
from tf_strategies.keras.model_state import averaged_variables, optimizers_of
from tf_strategies.keras.types import Model, Optimizer
from tf_strategies.local_sgd import LocalSGD
from tf_strategies.local_steps.averages import Averages, Sums, SumsBeside
from tf_strategies.local_steps.leveling import Workers, make_equal

__all__ = ["LocalSteps"]

_log = logging.getLogger("tf_strategies")
_CPU = "/device:CPU:0"

Variables = Sequence[tf.Variable]


class Counts:
    """Counts the local steps of this worker. Steps of `fit` write it, also within graphs.

    Attributes:
        rows: the rows that it has trained with, [] float64.
        steps: the steps that it has taken, [] int64.
        runs: the calls of `strategy.run` in the current step of a loop, [] int64.
    """

    def __init__(self) -> None:
        with tf.init_scope(), tf.device(_CPU):
            self.rows = _variable(0.0, tf.float64, "rows_of_local_steps")
            self.steps = _variable(0, tf.int64, "local_steps")
            self.runs = _variable(0, tf.int64, "runs_in_local_step")

    def add(self, rows: tf.Tensor) -> None:
        """Counts a step with so many rows."""
        with tf.device(_CPU):
            self.rows.assign_add(tf.cast(rows, tf.float64), read_value=False)
            self.steps.assign_add(1, read_value=False)

    def taken(self) -> int:
        """Returns the steps that this worker has taken."""
        return int(self.steps.numpy())

    def add_run(self) -> None:
        """Counts a call of `strategy.run`."""
        with tf.device(_CPU):
            self.runs.assign_add(1, read_value=False)

    def end_loop_step(self) -> None:
        """Counts a step of a loop, whatever it has run."""
        self.runs.assign(0)
        self.add(tf.ones([], tf.int64))


class _Progress:
    """The progress of one model.

    Attributes:
        are_local: whether steps are local; None before the first one.
        optimizer: the one that has trained the model so far.
        function: the train function whose variables `averages` has.
        differ: whether variables of the optimizer may differ between workers.
        in_round: whether a round has begun.
        is_lost: whether it took local steps when the workers changed, and was not put back.
        calls: how often the train function has run with this optimizer.
    """

    def __init__(self) -> None:
        self.counts = Counts()
        self.are_local: Optional[bool] = None
        self.optimizer: Callable[[], Optional[Optimizer]] = lambda: None
        self.function: Optional[StepFunction] = None
        self.differ = self.in_round = self.is_lost = False
        self.calls = 0
        self.averages: Optional[Averages] = None


class LocalSteps:
    """The local steps of the models of a strategy.

    Args:
        options: when to average, and how.
        workers: all workers.
        sums: adds up over workers.
        beside: adds up over workers, beside training.
    """

    def __init__(self, options: LocalSGD, workers: Workers, sums: Sums, beside: SumsBeside) -> None:
        self._options, self._workers, self._sums, self._beside = options, workers, sums, beside
        self._models: weakref.WeakKeyDictionary[Model, _Progress] = weakref.WeakKeyDictionary()

    def begin_loop_step(self, model: Model) -> Counts:
        """Begins a local step of a loop.

        Raises:
            OptionsError: the model cannot take one, or took one outside of `strategy.local_step`.
        """
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
        self._require_context(model)
        counts = self.begin_step(model)
        if counts is None:
            raise OptionsError(f"model {model.name!r} takes synchronous steps; train it in fit first")
        return counts

    def weights_of(self, model: Model) -> List[tf.Variable]:
        """Returns the weights that are averaged in the running round."""
        averages = self._models[model].averages
        return [] if averages is None else averages.weights

    def begin_step(self, model: Model) -> Optional[Counts]:
        """Returns what counts the steps that follow if they are local, or None for ordinary steps."""
        progress = self._models.setdefault(model, _Progress())
        if progress.is_lost:
            raise OptionsError(
                f"model {model.name!r} took local steps when the workers changed, and belongs to no fit or ElasticState that "
                "puts it back, so its weights differ between workers; train it in a fit of its own, or list it in ElasticState"
            )
        optimizer = getattr(model, "optimizer", None)
        if optimizer is not None and progress.optimizer() is not optimizer:
            self.average(model)
            progress.optimizer = weakref.ref(optimizer)
            progress.calls = 0
            progress.are_local = None  # `compile` has also dropped the train function
        if progress.are_local is None:
            has_variables = bool(model.built and model.trainable_variables)
            progress.are_local = has_variables and self._is_warm(model, progress)
        if not progress.are_local:
            return None
        if progress.function is not getattr(model, "train_function", None):
            self.average(model)  # layers may be frozen since
        if not progress.in_round:
            averages = self._averages(model, progress)
            self._average_others(progress, averages)
            averages.begin_round(progress.counts.taken())
            progress.in_round = progress.differ = True
        return progress.counts

    def end_step(self, model: Model) -> None:
        """Averages weights if it is time. After a synchronous step it decides whether the next one is local."""
        progress = self._models[model]
        progress.calls += 1
        if progress.are_local:
            averages = progress.averages
            if averages is not None and averages.note_steps(progress.counts.taken()):
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
        if progress is None or not progress.in_round or progress.averages is None:
            return
        progress.averages.end_round(progress.counts.taken())
        progress.in_round = False

    def average_for(self, model: Model) -> None:
        """Makes the weights of a model equal on all workers, also those that it shares with other models. A collective."""
        self.average(model)
        if not any(each.in_round for each in self._models.values()):
            return
        progress = self._models.setdefault(model, _Progress())
        self._average_others(progress, self._averages(model, progress))

    def make_equal(self, model: Model) -> bool:
        """Makes all variables of the model and its optimizer equal on all workers. A collective.

        Returns:
            Whether the model has taken local steps since the last call.

        Raises:
            OptionsError: the model took a local step outside of `strategy.local_step`.
        """
        self.average_for(model)
        progress = self._models.get(model)
        if progress is None:
            return False
        self._require_context(model)
        if not progress.differ:
            return False
        make_equal(self._workers, model)
        progress.differ = False
        return True

    def knows(self, model: Model) -> bool:
        """Returns True if the model has been trained."""
        return model in self._models

    def is_in_round(self, model: Model) -> bool:
        """Returns True if a model has taken a local step since the last average."""
        progress = self._models.get(model)
        return progress is not None and progress.in_round

    def begin_again(self, models: Sequence[Model]) -> None:
        """Forgets all rounds: the workers have changed, and put these models back to what they were after an average.

        The slots of their optimizers may differ between workers. Other models that have taken local steps are lost.
        """
        for model in models:
            self._models.setdefault(model, _Progress())
        for model, progress in self._models.items():
            is_back = any(model is each for each in models)
            progress.is_lost = not is_back and (progress.is_lost or progress.differ)
            progress.in_round, progress.differ = False, is_back
            progress.are_local, progress.calls, progress.function = None, 0, None
            progress.counts.runs.assign(0)
            if progress.averages is not None:
                progress.averages = self._new_averages(progress, progress.averages.variables)

    def models_that_differ(self) -> List[Model]:
        """Returns the models that may differ between workers, in weights or slots."""
        return [model for model, progress in self._models.items() if progress.differ]

    def velocities(self, model: Model) -> List[tf.Variable]:
        """Returns the velocities of the outer optimizer. Makes them if they are missing."""
        return self._averages(model, self._models.setdefault(model, _Progress())).velocities

    def _require_context(self, model: Model) -> None:
        progress = self._models.get(model)
        if progress is not None and int(progress.counts.runs.numpy()):
            raise OptionsError(
                f"a function that trains model {model.name!r} was traced in `with strategy.local_step(model):`, but called "
                "outside of it, or ended with an exception, so the weights of the workers differ; use the context for each step"
            )

    def _average_others(self, progress: _Progress, averages: Averages) -> None:
        """Averages other models in a round that share variables. A round begins with equal weights."""
        for other, theirs in list(self._models.items()):
            if theirs is progress or not theirs.in_round or theirs.averages is None:
                continue
            if averages.shares_with(theirs.averages):
                self.average(other)

    def _averages(self, model: Model, progress: _Progress) -> Averages:
        """Returns what averages the variables of the model: those that its train function has been made for."""
        found, function = progress.averages, getattr(model, "train_function", None)
        if found is not None and (
            progress.in_round or (function is not None and progress.function is function)
        ):
            return found
        weights, statistics = averaged_variables(model)
        if found is None or not found.fits(weights, statistics):
            found = progress.averages = self._new_averages(progress, (weights, statistics))
        progress.function = function
        return found

    def _new_averages(self, progress: _Progress, variables: Tuple[Variables, Variables]) -> Averages:
        """Returns what averages weights and statistics, with the velocities of what averaged them before."""
        weights, statistics = variables
        return Averages(
            weights,
            statistics,
            progress.counts.rows,
            self._options,
            sums=self._sums,
            beside=self._beside,
            size=self._workers.size,
            before=progress.averages,
        )

    def _is_warm(self, model: Model, progress: _Progress) -> bool:
        return _steps_of(model, progress) >= self._options.warmup_steps


def _variable(initial: float, dtype: tf.DType, name: str) -> tf.Variable:
    return compat.ResourceVariable(initial, dtype=dtype, trainable=False, name=name)


def _steps_of(model: Model, progress: _Progress) -> int:
    """Returns the steps that the model has taken: those of its optimizers, which a backup restores, or of this process."""
    counters = (getattr(each, "iterations", None) for each in optimizers_of(model))
    return max(progress.calls, *(int(each.numpy()) for each in counters if each is not None), 0)
