"""Scales the learning rates of a `fit` whose global batch follows the number of workers.

The scale is in the updates of the optimizers alone. All other code, such as a callback or a `train_step` of the user, reads and
sets the rate that was chosen.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from types import ModuleType
from typing import Callable, Iterator

import tensorflow as tf

from tf_strategies.keras.types import LearningRate, Optimizer, Replaced
from tf_strategies.types import Result, TensorLike

__all__ = ["apply_legacy", "hyperparameter_legacy", "learning_rate", "scaled_rates", "updating"]

_scale = 1.0  # for all threads: the replicas of a worker have their own
_updates = 0
_this_thread = threading.local()


@contextlib.contextmanager
def scaled_rates(scale: float) -> Iterator[None]:
    """Opens a context in which optimizers update variables with a multiple of their learning rates."""
    global _scale
    before, _scale = _scale, scale
    try:
        yield
    finally:
        _scale = before


@contextlib.contextmanager
def updating() -> Iterator[None]:
    """Opens a context in which an optimizer applies gradients."""
    global _updates
    before = getattr(_this_thread, "updates", False)
    _this_thread.updates, _updates = True, _updates + 1
    try:
        yield
    finally:
        _this_thread.updates, _updates = before, _updates - 1


def _present_scale() -> float:
    if _scale == 1.0:
        return 1.0
    merges = (
        _updates > 0 and tf.distribute.in_cross_replica_context()
    )  # the thread that updates for all replicas
    return _scale if merges or getattr(_this_thread, "updates", False) else 1.0


def learning_rate(original: property, keras: ModuleType) -> property:
    """Returns the property `learning_rate` of optimizers, which is scaled in updates."""
    del keras

    def rate(self: Optimizer) -> TensorLike:
        value, scale = original.__get__(self), _present_scale()
        return value if scale == 1.0 else value * scale

    return property(rate, original.fset, doc=original.__doc__)


def hyperparameter_legacy(original: Callable[..., LearningRate], keras: ModuleType) -> Replaced:
    """Returns the method by which legacy optimizers read their settings, which scales the learning rate in updates."""

    class Scaled(keras.optimizers.schedules.LearningRateSchedule):
        """Multiplies the rates of another schedule."""

        def __init__(self, schedule: LearningRate, scale: float) -> None:
            self._schedule, self._times = schedule, scale

        def __call__(self, step: TensorLike) -> tf.Tensor:
            """Returns the rate of a step."""
            return self._schedule(step) * self._times

    @functools.wraps(original)
    def get(self: Optimizer, name: str, *args: object, **kwargs: object) -> LearningRate:
        value, scale = original(self, name, *args, **kwargs), _present_scale()
        if name != "learning_rate" or scale == 1.0:
            return value
        return Scaled(value, scale) if callable(value) else value * scale

    return get


def apply_legacy(original: Callable[..., Result], keras: ModuleType) -> Callable[..., Result]:
    """Returns `apply_gradients` of legacy optimizers, which tells when they update."""
    del keras

    @functools.wraps(original)
    def apply(self: Optimizer, *args: object, **kwargs: object) -> Result:
        with updating():
            return original(self, *args, **kwargs)

    return tf.autograph.experimental.do_not_convert(apply)
