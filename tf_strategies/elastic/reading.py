"""Reads the variables of training after each step: lists them only when they have changed, and reads all in one call."""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import tensorflow as tf

from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.model_state import adds_up, metric_variables, replicas_of, training_variables
from tf_strategies.keras.types import Model

__all__ = ["Reader", "Values", "VariableLists"]

Values = Dict[str, List[tf.Tensor]]
"""The values of variables on the replicas of this worker, by the name of the variable."""

_MOST_KEPT = 4  # of functions: with metrics and without, before the first step and after


class VariableLists:
    """Lists the variables of a model.

    It does so again if variables were made in the scope of the strategy, or their order has changed.

    Args:
        model: the model.
        strategy: its strategy; None for a single process.
    """

    def __init__(self, model: Model, strategy: Optional[GroupStrategy]) -> None:
        self._model, self._strategy = model, strategy
        self._lists: Dict[Callable[[Model], Dict[str, tf.Variable]], Dict[str, tf.Variable]] = {}
        self._state: object = None

    def of_training(self) -> Dict[str, tf.Variable]:
        """Does the same as `training_variables`."""
        return self._listed(training_variables)

    def of_metrics(self) -> Dict[str, tf.Variable]:
        """Does the same as `metric_variables`."""
        return self._listed(metric_variables)

    def _listed(self, variables_of: Callable[[Model], Dict[str, tf.Variable]]) -> Dict[str, tf.Variable]:
        if self._strategy is None:
            return variables_of(self._model)
        model, optimizer = self._model, getattr(self._model, "optimizer", None)
        order = tuple(map(id, model.weights)) if model.built else ()
        state = self._strategy.variables_made, id(optimizer), order
        if state != self._state:
            self._lists, self._state = {}, state
        if variables_of not in self._lists:
            self._lists[variables_of] = variables_of(model)
        return self._lists[variables_of]


class _Reading(NamedTuple):
    """Describes how some variables are read.

    Attributes:
        function: returns the values of those that do not add up, and the sums of the others.
        add_up: for each variable, whether it adds up over replicas.
        variables: the variables, which are held so that their ids are theirs.
    """

    function: tf.types.experimental.ConcreteFunction
    add_up: List[bool]
    variables: List[tf.Variable]


class Reader:
    """Reads variables with one call of a function, which it keeps for the next time."""

    def __init__(self) -> None:
        self._functions: Dict[Tuple[int, ...], _Reading] = {}

    def read(
        self, variables: Dict[str, tf.Variable], strategy: Optional[GroupStrategy]
    ) -> Tuple[Values, Dict[str, np.ndarray]]:
        """Returns the values of the variables that do not add up over replicas, and the sums over all replicas of the others.

        A collective if variables add up. The values share the memory of the variables.

        Args:
            variables: the variables, by name; the same names on all workers.
            strategy: the strategy; None for a single process.
        """
        reading = self._reading(list(variables.values()))
        values, flat = reading.function()
        read = dict(zip((name for name, sums in zip(variables, reading.add_up) if not sums), values))
        summed = {name: variables[name] for name, sums in zip(variables, reading.add_up) if sums}
        if not summed:
            return read, {}
        total = flat if strategy is None else strategy.sum_over_workers(flat, "sums of metrics")
        return read, _cut(total.numpy(), summed)

    def _reading(self, variables: List[tf.Variable]) -> _Reading:
        key = tuple(map(id, variables))
        if key not in self._functions:
            while len(self._functions) >= _MOST_KEPT:
                del self._functions[next(iter(self._functions))]
            add_up = list(map(adds_up, variables))
            others = [each for each, sums in zip(variables, add_up) if not sums]
            summed = [each for each, sums in zip(variables, add_up) if sums]
            read = tf.function(lambda: (list(map(_read, others)), _flat(summed)), autograph=False)
            self._functions[key] = _Reading(read.get_concrete_function(), add_up, variables)
        return self._functions[key]


def _read(variable: tf.Variable) -> List[tf.Tensor]:
    return [part.read_value() for part in replicas_of(variable)]


def _flat(variables: List[tf.Variable]) -> tf.Tensor:
    """Returns the sums over the replicas of this worker, [elements] float64."""
    with tf.device("CPU:0"):
        sums = [tf.add_n([tf.cast(part, tf.float64) for part in _read(each)]) for each in variables]
        return tf.concat([tf.zeros([0], tf.float64), *(tf.reshape(each, [-1]) for each in sums)], axis=0)


def _cut(flat: np.ndarray, variables: Dict[str, tf.Variable]) -> Dict[str, np.ndarray]:
    sums, start = {}, 0
    for name, variable in variables.items():
        shape = variable.shape.as_list()
        end = start + int(np.prod(shape))
        sums[name] = flat[start:end].reshape(shape).astype(variable.dtype.as_numpy_dtype)
        start = end
    return sums
