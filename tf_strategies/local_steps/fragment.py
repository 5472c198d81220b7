"""Averages some of the variables of a model over all workers.

A round is the time between two averages. Each worker keeps the weights with which the round began, which are equal on all
workers. The mean change of the weights is the gradient of an outer SGD with Nesterov momentum. With learning rate 1 and no
momentum, the new weights are the mean of those of the workers.

If the sums are computed beside training, the next round begins when the changes are sent. The weights that the outer optimizer
has computed from them are its start, and a worker adds to them what its own steps have changed since:

    weights = outer weights + (weights now - weights when the changes were sent)
"""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.keras.model_state import replicas_of
from tf_strategies.local_sgd import LocalSGD
from tf_strategies.local_steps.replicas import assign_all, wide_value
from tf_strategies.types import Result

__all__ = ["Flight", "Fragment", "Sums", "SumsBeside", "slot_of"]

Totals = Tuple[List[tf.Tensor], List[tf.Tensor]]

Sums = Callable[[Sequence[tf.Tensor], Sequence[tf.Tensor]], Totals]
"""Returns the sums over workers of some tensors, which may be rounded on the way, and the exact sums of others. A collective."""

SumsBeside = Callable[[Sequence[tf.Tensor], Sequence[tf.Tensor]], Callable[[], Totals]]
"""Begins to compute such sums, and returns a function that waits for them and returns them. A collective."""


class Flight(NamedTuple):
    """The changes of a fragment that are on their way.

    Attributes:
        fragment: the fragment.
        sent: the step after which they were sent.
        values: the weights then.
        totals: waits for their sums, and returns them.
    """

    fragment: Fragment
    sent: int
    values: List[tf.Tensor]
    totals: Callable[[], Totals]


class Fragment:
    """Averages some variables.

    Args:
        weights: the variables that the outer optimizer moves.
        velocities: its velocities, one for each; empty without momentum.
        statistics: variables that move to the mean, such as those of batch normalization. They cannot be sent beside training.
        rows: the number of rows that this worker has trained with so far, [] float64.
        options: the outer optimizer.
        sums: adds up over workers.
        beside: adds up over workers, beside training.
    """

    def __init__(
        self,
        weights: Sequence[tf.Variable],
        velocities: Sequence[tf.Variable],
        statistics: Sequence[tf.Variable],
        rows: tf.Variable,
        options: LocalSGD,
        *,
        sums: Sums,
        beside: SumsBeside,
    ) -> None:
        self._count = len(weights)
        self._all = [*weights, *statistics]
        self._velocities, self._rows, self._options = list(velocities), rows, options
        self._sums, self._beside = sums, beside
        self._starts: List[tf.Variable] = []
        self._begun = 0
        self._begin: Optional[Callable[[], None]] = None
        self._end: Optional[Callable[[], None]] = None
        self._leave: Optional[Callable[[], Tuple[List[tf.Tensor], List[tf.Tensor], tf.Tensor]]] = None
        self._arrive = tf.function(self._add_progress, autograph=False)

    def begin_round(self, steps: int) -> None:
        """Keeps the variables, which are equal on all workers now, after so many steps."""
        if self._begin is None:
            self._starts = [
                slot_of(each, f"start_of_round_{number}") for number, each in enumerate(self._all)
            ]
            with tf.init_scope(), tf.device(self._rows.device):
                self._rows_before = compat.ResourceVariable(
                    0.0, dtype=tf.float64, trainable=False, name="rows_before_round"
                )
            self._begin = _traced(self._note_start)
        self._begin()
        self._begun = steps

    def average(self, steps: int) -> None:
        """Makes the variables equal on all workers, unless the round has no step. A collective. Ends the round."""
        if steps == self._begun:
            return
        if self._end is None:
            self._end = _traced(self._average)
        self._end()

    def depart(self, steps: int) -> Flight:
        """Sends the changes of the round. The next round begins. A collective that does not wait."""
        if self._leave is None:
            self._leave = _traced(self._changes_and_values)
        changes, values, rows = self._leave()
        self._begun = steps
        return Flight(self, steps, values, self._beside(changes, [rows]))

    def arrive(self, flight: Flight) -> None:
        """Waits for the sums of the changes, and moves the weights. A collective."""
        changes, (rows,) = flight.totals()
        self._arrive(changes, rows, flight.values)

    def _note_start(self) -> None:
        self._rows_before.assign(self._rows.read_value(), read_value=False)
        for start, variable in zip(self._starts, self._all):
            start.assign(wide_value(variable), read_value=False)

    def _average(self) -> None:
        changes, _, rows = self._changes_and_values()
        of_weights, (total, *others) = self._sums(changes[: self._count], [rows, *changes[self._count :]])
        for number, change in enumerate([*of_weights, *others]):
            start = self._starts[number]
            with tf.device(start.device):
                assign_all(self._all[number], start - self._step(number, change, total))

    def _changes_and_values(self) -> Tuple[List[tf.Tensor], List[tf.Tensor], tf.Tensor]:
        """Returns the changes of the round times the rows, the values, and the rows. The next round counts its rows from here."""
        counted = self._rows.read_value()
        rows = counted - self._rows_before
        self._rows_before.assign(counted, read_value=False)
        values = [wide_value(variable) for variable in self._all]
        changes = [
            _difference(start, value) * tf.cast(rows, start.dtype)
            for start, value in zip(self._starts, values)
        ]
        return changes, values, rows

    def _add_progress(self, changes: List[tf.Tensor], rows: tf.Tensor, values: List[tf.Tensor]) -> None:
        for number, (start, change, value) in enumerate(zip(self._starts, changes, values)):
            with tf.device(start.device):
                moved = start - self._step(number, change, rows)
                start.assign(moved, read_value=False)
                variable = self._all[number]
                assign_all(variable, moved + _difference(wide_value(variable), value))

    def _step(self, number: int, change: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Returns the step from the start of the round to the average, given the sums of the changes and of the rows."""
        gradient = tf.math.divide_no_nan(change, tf.cast(rows, change.dtype))
        if number >= self._count:
            return gradient
        momentum = self._options.outer_momentum
        if momentum:
            velocity = momentum * self._velocities[number] + gradient
            self._velocities[number].assign(velocity, read_value=False)
            gradient = gradient + momentum * velocity
        return self._options.outer_learning_rate * gradient


def slot_of(variable: tf.Variable, name: str) -> tf.Variable:
    """Returns a new variable of zeros on the device of a variable, which only this worker knows."""
    part = replicas_of(variable)[0]
    dtype = tf.float32 if part.dtype.size < 4 else part.dtype
    with tf.init_scope(), tf.device(part.device):
        return compat.ResourceVariable(tf.zeros(part.shape, dtype), trainable=False, name=name)


def _traced(function: Callable[[], Result]) -> Callable[[], Result]:
    concrete: Callable[[], Result] = tf.function(function, autograph=False).get_concrete_function()
    return concrete


def _difference(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
    """Returns `one` - `other`, and 0 where they are equal, also if they are infinite."""
    return tf.where(tf.equal(one, other), tf.zeros_like(one), one - other)
