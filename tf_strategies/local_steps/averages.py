"""Averages the weights of one model over all workers: all at once, or one fragment after the other."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies.local_sgd import LocalSGD
from tf_strategies.local_steps.division import divided
from tf_strategies.local_steps.fragment import Flight, Fragment, Sums, SumsBeside, slot_of
from tf_strategies.local_steps.schedule import Schedule

__all__ = ["Averages", "Sums", "SumsBeside"]


class Averages:
    """Averages some variables.

    Args:
        weights: the variables that the outer optimizer moves.
        statistics: variables that move to the mean, such as those of batch normalization. If fragments are averaged one after the
            other, or beside training, this happens when all weights are averaged.
        rows: the number of rows that this worker has trained with, [] float64.
        options: the outer optimizer, and when to average.
        sums: adds up over workers.
        beside: adds up over workers, beside training.
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
        beside: SumsBeside,
        size: int,
        before: Optional[Averages],
    ) -> None:
        self.weights, self._statistics = list(weights), list(statistics)
        self._all = [*weights, *statistics]
        self._delay = options.overlap_steps
        self._at_once = options.fragments == 1 and not options.overlap_steps
        is_plain = options.outer_learning_rate == 1 and not options.outer_momentum
        self._changes_nothing = size == 1 and is_plain
        known = {} if before is None else dict(zip(map(id, before.weights), before.velocities))
        self.velocities: List[tf.Variable] = []
        if options.outer_momentum:
            self.velocities = [
                known[id(each)] if id(each) in known else slot_of(each, f"outer_velocity_{number}")
                for number, each in enumerate(self.weights)
            ]

        def fragment(numbers: Sequence[int], others: Sequence[tf.Variable]) -> Fragment:
            mine = [self.weights[number] for number in numbers]
            velocities = [self.velocities[number] for number in numbers] if self.velocities else []
            return Fragment(mine, velocities, others, rows, options, sums=sums, beside=beside)

        sizes = [int(each.shape.num_elements()) * each.dtype.size for each in self.weights]
        parts = divided(sizes, max(1, min(options.fragments, len(sizes))))
        self._fragments = [fragment(numbers, statistics if self._at_once else ()) for numbers in parts]
        self._rest = [] if self._at_once or not statistics else [fragment((), statistics)]
        self._schedule = Schedule(options.sync_every, len(parts))
        self._flights: List[Flight] = []  # in the order in which they were sent

    @property
    def variables(self) -> Tuple[List[tf.Variable], List[tf.Variable]]:
        """The weights, and the statistics."""
        return self.weights, self._statistics

    def fits(self, weights: Sequence[tf.Variable], statistics: Sequence[tf.Variable]) -> bool:
        """Returns True if these are the variables that are averaged."""
        return list(map(id, (*weights, *statistics))) == list(map(id, self._all))

    def shares_with(self, other: Averages) -> bool:
        """Returns True if some variable belongs to both."""
        return not set(map(id, self._all)).isdisjoint(map(id, other._all))

    def begin_round(self, steps: int) -> None:
        """Keeps all variables, which are equal on all workers now, after so many steps."""
        self._schedule.restart(steps)
        if not self._changes_nothing:
            for each in (*self._fragments, *self._rest):
                each.begin_round(steps)

    def note_steps(self, steps: int) -> bool:
        """Averages the fragments that are due after so many steps. A collective.

        Returns:
            Whether the round of all variables is to be ended instead.
        """
        while self._flights and steps - self._flights[0].sent >= self._delay:
            self._land()
        due = self._schedule.due(steps)
        if self._at_once:
            return bool(due)
        if self._changes_nothing:
            return False
        for fragment in (self._fragments[number] for number in due):
            if self._delay:
                self._flights.append(fragment.depart(steps))
            else:
                fragment.average(steps)
                fragment.begin_round(steps)
        return False

    def end_round(self, steps: int) -> None:
        """Makes all variables equal on all workers, after so many steps. A collective."""
        if self._changes_nothing:
            return
        while self._flights:
            self._land()
        for each in (*self._fragments, *self._rest):
            each.average(steps)

    def _land(self) -> None:
        flight = self._flights.pop(0)
        flight.fragment.arrive(flight)
