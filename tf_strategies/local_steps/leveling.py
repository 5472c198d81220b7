"""Makes the variables of a model and its optimizer equal on all workers, after local steps."""

from __future__ import annotations

from typing import List, Protocol, Sequence

import tensorflow as tf

from tf_strategies.keras.drift import checksum
from tf_strategies.keras.model_state import (
    agreed_variables,
    follows_first_worker,
    learning_rates,
    replicas_of,
)
from tf_strategies.keras.types import Model
from tf_strategies.local_steps.replicas import assign_all, wide_value

__all__ = ["Workers", "make_equal"]

_DIGITS = 8
_NAME = "a variable after local steps"


class Workers(Protocol):
    """The workers, as far as they compare and exchange values."""

    size: int

    def exchange(self, text: str, what: str) -> List[str]:
        """Returns the text of every worker, by rank. A collective."""

    def sums_over_workers(self, values: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        """Returns the sum of each tensor over workers. A collective."""

    def of_first_worker(self, value: tf.Tensor, what: str) -> tf.Tensor:
        """Returns the tensor of worker 0. A collective."""


def make_equal(workers: Workers, model: Model) -> None:
    """Makes all variables equal that differ between workers. A collective.

    Floats become the mean over workers, which all compute from the same bytes. Integers, single numbers such as a loss scale,
    and variables that follow the first worker, become those of worker 0. Learning rates stay: the comparison at the end of the
    epoch refuses different ones.
    """
    if workers.size == 1:
        return
    rates = set(map(id, learning_rates(model)))
    compared = [each for each in agreed_variables(model) if id(each) not in rates]
    differing = _differing(workers, compared)
    means = [
        each
        for each in differing
        if each.dtype.is_floating and each.shape.rank and not follows_first_worker(each)
    ]
    sums = workers.sums_over_workers([wide_value(each) for each in means])
    for variable, total in zip(means, sums):
        assign_all(variable, total / workers.size)
    for variable in differing:
        if not any(variable is each for each in means):
            assign_all(variable, workers.of_first_worker(replicas_of(variable)[0].read_value(), _NAME))


def _differing(workers: Workers, variables: Sequence[tf.Variable]) -> List[tf.Variable]:
    codes = workers.exchange("".join(map(checksum, variables)), "state after local steps")
    if any(len(code) != len(codes[0]) for code in codes):
        return []  # the comparison at the end of the epoch has an error for it
    places = [slice(start, start + _DIGITS) for start in range(0, len(codes[0]), _DIGITS)]
    return [
        variable
        for variable, place in zip(variables, places)
        if any(code[place] != codes[0][place] for code in codes)
    ]
