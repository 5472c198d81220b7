"""Tells strategies when Keras trains or evaluates, and lets them call its steps."""

from __future__ import annotations

import functools
import inspect
import logging
from types import ModuleType
from typing import Any, Callable, Iterator, Optional

import tensorflow as tf

from tf_strategies.keras import prediction_order, refusals
from tf_strategies.keras.fit_types import StepFunction
from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.model_state import forget_loops
from tf_strategies.keras.running_fit import fit_runs, is_fitting
from tf_strategies.keras.single_batch import as_dataset, own_rows
from tf_strategies.keras.types import Model
from tf_strategies.keras.worker_strategy import WorkerStrategy
from tf_strategies.types import Result, Structure

__all__ = [
    "evaluate",
    "fit",
    "predict",
    "predict_function",
    "predict_on_batch",
    "test_function",
    "train_function",
]

_log = logging.getLogger("tf_strategies")

_FUNCTIONS = ("train_function", "test_function", "predict_function")
_ONLY_IN_KERAS2 = "_validate_and_get_metrics_result"


def fit(original: Callable[..., Result], keras: ModuleType) -> Callable[..., Result]:
    """Returns `Model.fit`, which tells the strategy that training runs."""
    signature = inspect.signature(original)
    loop = _within(refusals.before_training(original, keras), "training")

    @functools.wraps(original)
    def fit_noted(self: Model, *args: Any, **kwargs: Any) -> Result:
        try:
            given = signature.bind(self, *args, **kwargs)
        except TypeError:  # Keras has a better message
            return original(self, *args, **kwargs)

        def once(**changes: Any) -> Result:
            call = inspect.BoundArguments(signature, given.arguments | changes)
            with fit_runs(self, call.arguments.get("epochs", 1), call.arguments.get("callbacks")):
                return loop(*call.args, **call.kwargs)

        strategy = self.distribute_strategy
        if not isinstance(strategy, WorkerStrategy):
            return once()
        return strategy.keep_fitting(self, given.arguments, once)

    return fit_noted


def evaluate(original: Callable[..., Result], keras: ModuleType) -> Callable[..., Result]:
    """Returns `Model.evaluate`, which tells the strategy that the model is only evaluated."""
    del keras
    return _begun_again(_within(refusals.before_testing(original), "whole_data"))


def predict(original: Callable[..., Result], keras: ModuleType) -> Callable[..., Result]:
    """Returns `Model.predict`, which does the same, and returns rows in the order of the dataset."""
    # Keras 2 keeps the order itself.
    in_order = prediction_order.in_order if hasattr(keras, "random") else lambda found: found
    return _begun_again(in_order(_within(original, "whole_data")))


def train_on_batch(original: Callable[..., Result], keras: ModuleType) -> Callable[..., Result]:
    """Returns `Model.train_on_batch`, which tells the strategy that the model takes a step outside of `fit`."""
    del keras
    return _within(original, "training_on_batch")


def predict_on_batch(original: Callable[..., Structure], keras: ModuleType) -> Callable[..., Structure]:
    """Returns `Model.predict_on_batch`, which splits the batch between workers and returns the rows of all, in order."""
    del keras

    @functools.wraps(original)
    def predict_split(self: Model, x: Structure) -> Structure:
        strategy = self.distribute_strategy
        if isinstance(strategy, GroupStrategy) and strategy.replicas_now > 1:
            (x,) = strategy.call(own_rows, strategy, (x,))
        return original(self, x)

    return predict_split


def train_function(
    original: Callable[..., Optional[StepFunction]], keras: ModuleType
) -> Callable[..., Optional[StepFunction]]:
    """Returns the method that makes the function of training steps, changed so that the strategy calls the steps."""
    return _called_by_strategy(refusals.before_training(original, keras), "train_function")


def test_function(
    original: Callable[..., Optional[StepFunction]], keras: ModuleType
) -> Callable[..., Optional[StepFunction]]:
    """Returns the method that makes the function of evaluation steps, changed so that the strategy calls the steps."""
    del keras
    return _called_by_strategy(refusals.before_testing(original), "test_function")


def predict_function(
    original: Callable[..., Optional[StepFunction]], keras: ModuleType
) -> Callable[..., Optional[StepFunction]]:
    """Returns the method that makes the function of prediction steps, changed so that the strategy calls the steps."""
    del keras
    return _called_by_strategy(original, "predict_function")


def _within(original: Callable[..., Result], context: str) -> Callable[..., Result]:
    @functools.wraps(original)
    def loop(self: Model, *args: Any, **kwargs: Any) -> Result:
        strategy = self.distribute_strategy
        if not isinstance(strategy, WorkerStrategy):
            return original(self, *args, **kwargs)
        with getattr(strategy, context)():
            return original(self, *args, **kwargs)

    return loop


def _begun_again(loop: Callable[..., Result]) -> Callable[..., Result]:
    """Returns a loop that begins again from the start when lost variables have come back, if its data can be read again."""

    @functools.wraps(loop)
    def call(self: Model, *args: Any, **kwargs: Any) -> Result:
        strategy = self.distribute_strategy
        if not isinstance(strategy, WorkerStrategy):
            return loop(self, *args, **kwargs)
        data = args[0] if args else kwargs.get("x")
        while True:
            generation = strategy.generation
            try:
                return loop(self, *args, **kwargs)
            except Exception as error:
                if hasattr(data, "__next__") or not strategy.recover(error, generation):
                    raise
            _log.warning("%s begins again", loop.__name__)

    return call


def _called_by_strategy(
    original: Callable[..., Optional[StepFunction]], name: str
) -> Callable[..., Optional[StepFunction]]:
    @functools.wraps(original)
    def make(self: Model, *args: Any, **kwargs: Any) -> Optional[StepFunction]:
        strategy = self.distribute_strategy
        _forget_loops_of_another_group(self, strategy)
        made = original(self, *args, **kwargs)
        function = getattr(self, name)
        if isinstance(strategy, WorkerStrategy) and not getattr(function, "called_by_strategy", False):
            function = _by(strategy, self, function, name)
            setattr(self, name, function)
        return made if made is None else function

    return make


def _by(strategy: WorkerStrategy, model: Model, function: StepFunction, name: str) -> StepFunction:
    trains, generation = name == "train_function", strategy.generation

    @functools.wraps(function)
    def call(*args: Any) -> Structure:
        if strategy.generation != generation and not isinstance(strategy, GroupStrategy):
            _forget_loops_of_another_group(model, strategy)
            return getattr(model, name)(*args)
        try:
            return attempt(*args)
        except Exception as error:
            if not (trains and is_fitting(model)) or not strategy.recover(error, generation):
                raise
        return call(*map(strategy.data_after_loss, args))

    def attempt(*args: Any) -> Structure:
        if not trains:
            strategy.evaluates(model)
        if name == "predict_function":
            return strategy.call(function, *args)
        (data,) = args
        if isinstance(strategy, GroupStrategy):
            data = _split_between_workers(strategy, function, data)
        with strategy.joint_steps(model, data, trains=trains, sums_logs=_sums_logs(model)) as given:
            result = strategy.call(function, given)
        if trains:
            strategy.trained(model)
        return result

    call.called_by_strategy = True  # type: ignore[attr-defined]
    call.generation = generation  # type: ignore[attr-defined]
    return call


def _trace_again(model: Model) -> None:
    """Makes the functions of the model again, also those of a loop that waits for another one."""
    names = [each for each in _FUNCTIONS if getattr(model, each) is not None]
    for each in names:
        setattr(model, each, None)
    for each in names:
        getattr(model, f"make_{each}")()


def _forget_loops_of_another_group(model: Model, strategy: tf.distribute.Strategy) -> None:
    """Forgets functions that were traced for a group which has changed since, or for servers that have come back since."""
    now = getattr(strategy, "generation", None)
    functions = (model.train_function, model.test_function, model.predict_function)
    if not any(getattr(each, "generation", now) != now for each in functions):
        return
    if isinstance(strategy, GroupStrategy):
        forget_loops(model)
    else:
        _trace_again(model)  # its loops may be running


def _sums_logs(model: Model) -> bool:
    """Returns True if Keras adds up the results of replicas.

    Keras 2 does, unless it is told otherwise. Keras 3 takes the mean.
    """
    return hasattr(model, _ONLY_IN_KERAS2) and model.distribute_reduction_method in ("auto", "sum")


def _split_between_workers(
    strategy: GroupStrategy, function: StepFunction, data: Iterator[Structure]
) -> Iterator[Structure]:
    """Returns an iterator that gives each replica its rows of the batches.

    The `..._on_batch` methods of Keras 3 give the whole batch to every replica, those of Keras 2 split it.
    """
    if isinstance(data, (tf.distribute.DistributedIterator, tf.data.Iterator)) or strategy.replicas_now == 1:
        return data
    # The functions of Keras before 3.7 are tf.functions, which would trace any other iterator each time.
    if hasattr(function, "get_concrete_function"):
        return iter(strategy.experimental_distribute_dataset(as_dataset(next(data))))
    return (own_rows(strategy, batch) for batch in data)
