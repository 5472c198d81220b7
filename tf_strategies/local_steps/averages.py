"""Averages the weights of one model over all workers.

A round is the time between two averages. Each worker keeps the weights with which the round began, which are equal on all
workers. The mean change of the weights is the gradient of an outer SGD with Nesterov momentum. With learning rate 1 and no
momentum, the new weights are the mean of those of the workers.
"""

from __future__ import annotations

from typing import Callable, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.keras.model_state import replicas_of
from tf_strategies.local_sgd import LocalSGD
from tf_strategies.local_steps.replicas import assign_all, wide_value

__all__ = ["Averages", "Sums"]

Sums = Callable[[Sequence[tf.Tensor], Sequence[tf.Tensor]], Tuple[List[tf.Tensor], List[tf.Tensor]]]
"""Returns the sums over workers of some tensors, which may be rounded on the way, and the exact sums of others. A collective."""


class Averages:
    """Averages some variables.

    Args:
        weights: the variables that the outer optimizer moves.
        statistics: variables that move to the mean, such as those of batch normalization.
        rows: the number of rows that this worker has trained with in the round, [] float64. It is reset.
        options: the outer optimizer.
        sums: adds up over workers.
        size: the number of workers.
        before: the averages of an earlier round, whose velocities are kept.
    """

    def __init__(
        self,
        weights: Sequence[tf.Variable],
        statistics: Sequence[tf.Variable],
        rows: tf.Variable,
        options: LocalSGD,
        *,
        sums: Sums,
        size: int,
        before: Optional[Averages],
    ) -> None:
        self.weights = list(weights)
        self._all = [*weights, *statistics]
        self._rows, self._options, self._sums = rows, options, sums
        self._changes_nothing = size == 1 and options.learning_rate == 1 and not options.momentum
        known = {} if before is None else dict(zip(map(id, before.weights), before.velocities))
        self.velocities: List[tf.Variable] = []
        if options.momentum:
            self.velocities = [
                known[id(each)] if id(each) in known else _slot_of(each, f"outer_velocity_{number}")
                for number, each in enumerate(self.weights)
            ]
        self._starts: List[tf.Variable] = []
        self._begin: Optional[Callable[[], None]] = None
        self._end: Optional[Callable[[], None]] = None

    def fits(self, weights: Sequence[tf.Variable], statistics: Sequence[tf.Variable]) -> bool:
        """Returns True if these are the variables that are averaged."""
        return list(map(id, (*weights, *statistics))) == list(map(id, self._all))

    def shares_with(self, other: Averages) -> bool:
        """Returns True if some variable belongs to both."""
        return not set(map(id, self._all)).isdisjoint(map(id, other._all))

    def begin_round(self) -> None:
        """Keeps the weights, which are equal on all workers now."""
        if self._changes_nothing:
            return
        if self._begin is None:
            self._starts = [
                _slot_of(each, f"start_of_round_{number}") for number, each in enumerate(self._all)
            ]
            self._begin = _traced(self._note_start)
        self._begin()

    def end_round(self) -> None:
        """Makes the weights equal on all workers. A collective."""
        if self._changes_nothing:
            self._rows.assign(0.0)
            return
        if self._end is None:
            self._end = _traced(self._average)
        self._end()

    def _note_start(self) -> None:
        for start, variable in zip(self._starts, self._all):
            start.assign(wide_value(variable), read_value=False)

    def _average(self) -> None:
        rows = self._rows.read_value()
        changes = [
            _difference(start, wide_value(variable)) * tf.cast(rows, start.dtype)
            for start, variable in zip(self._starts, self._all)
        ]
        count = len(self.weights)
        of_weights, (total, *of_statistics) = self._sums(changes[:count], [rows, *changes[count:]])
        for number, change in enumerate([*of_weights, *of_statistics]):
            start = self._starts[number]
            with tf.device(start.device):
                step = tf.math.divide_no_nan(change, tf.cast(total, change.dtype))
                if number < count:
                    step = self._options.learning_rate * self._step(number, step)
                assign_all(self._all[number], start - step)
        self._rows.assign(0.0, read_value=False)

    def _step(self, number: int, gradient: tf.Tensor) -> tf.Tensor:
        """Returns the step of SGD with Nesterov momentum, before the learning rate."""
        if not self._options.momentum:
            return gradient
        momentum = self._options.momentum
        velocity = momentum * self.velocities[number] + gradient
        self.velocities[number].assign(velocity, read_value=False)
        return gradient + momentum * velocity


def _traced(function: Callable[[], None]) -> Callable[[], None]:
    concrete: Callable[[], None] = tf.function(function, autograph=False).get_concrete_function()
    return concrete


def _difference(start: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    """Returns `start` - `value`, and 0 where they are equal, also if they are infinite."""
    return tf.where(tf.equal(start, value), tf.zeros_like(value), start - value)


def _slot_of(variable: tf.Variable, name: str) -> tf.Variable:
    """Returns a new variable of zeros on the device of a variable, which only this worker knows."""
    part = replicas_of(variable)[0]
    dtype = tf.float32 if part.dtype.size < 4 else part.dtype
    with tf.init_scope(), tf.device(part.device):
        return compat.ResourceVariable(tf.zeros(part.shape, dtype), trainable=False, name=name)
