"""Scales learning rates in the steps of a `fit` whose global batch follows the number of workers.

The scale is within the steps alone. Code outside of them, such as a callback, reads and sets the rate that the user has chosen.
"""

from __future__ import annotations

import contextlib
import functools
from types import ModuleType
from typing import Callable, Iterator

import tensorflow as tf

from tf_strategies.keras.types import LearningRate, Optimizer, Replaced
from tf_strategies.types import TensorLike

__all__ = ["hyperparameter_keras2", "learning_rate", "scaled_rates"]

_scale = 1.0  # for all threads: the replicas of a worker have their own


@contextlib.contextmanager
def scaled_rates(scale: float) -> Iterator[None]:
    """Opens a context in which optimizers use a multiple of their learning rates."""
    global _scale
    before, _scale = _scale, scale
    try:
        yield
    finally:
        _scale = before


def learning_rate(original: property, keras: ModuleType) -> property:
    """Returns the property `learning_rate` of optimizers, scaled in steps."""
    del keras

    def rate(self: Optimizer) -> TensorLike:
        value = original.__get__(self)
        return value if _scale == 1.0 else value * _scale

    return property(rate, original.fset, doc=original.__doc__)


def hyperparameter_keras2(original: Callable[..., LearningRate], keras: ModuleType) -> Replaced:
    """Returns the method by which legacy optimizers read their settings, which scales the learning rate in steps."""

    class Scaled(keras.optimizers.schedules.LearningRateSchedule):
        """Multiplies the rates of another schedule."""

        def __init__(self, schedule: LearningRate, scale: float) -> None:
            self._schedule, self._times = schedule, scale

        def __call__(self, step: TensorLike) -> tf.Tensor:
            """Returns the rate of a step."""
            return self._schedule(step) * self._times

    @functools.wraps(original)
    def get(self: Optimizer, name: str, *args: object, **kwargs: object) -> LearningRate:
        value = original(self, name, *args, **kwargs)
        if name != "learning_rate" or _scale == 1.0:
            return value
        return Scaled(value, _scale) if callable(value) else value * _scale

    return get
