"""Weights gradients by what the losses of workers are divided by, for workers that exchange gradients alone.

A mean over the valid rows of a worker, or one that is divided by its sample weights, has the weight of its divisor in the joint
batch. If the loss of a model is one such mean, the gradients of the workers, weighted by their divisors, have the gradient of
the joint batch as their mean. If other losses add to it that depend on the batch, no weight is right for all, and a warning
says so.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from typing import Callable, Iterator, List, NamedTuple, Optional, Set

import tensorflow as tf

from tf_strategies.keras.own_code import has_only_compiled_losses
from tf_strategies.keras.types import Model

__all__ = ["MESSAGE", "LossDivisors"]

MESSAGE = (
    "The loss %s is divided by the valid rows or by the sample weights of each worker, because of a mask, ignore_class or "
    'reduction="mean_with_sample_weight". The model has other losses, too, or code of its own that computes them, so that the '
    "gradients of the %d workers are weighted by their rows. This is not the gradient of one process. "
    "CollectiveAllReduceStrategy trains this model as one process does"
)
_log = logging.getLogger("tf_strategies")


class _Noted(NamedTuple):
    name: str
    divisor: Optional[tf.Tensor]
    values: tf.Tensor
    is_compiled: bool


class LossDivisors:
    """Knows the losses of the step that is traced, and what they are divided by.

    Args:
        weigh: weights the gradients of the step by the divisor of its only loss, [] float32, in place of rows. It is also given
            the values of which the loss is the mean.
        workers: the number of workers.
        warns: whether this worker is the one that warns.
    """

    def __init__(self, weigh: Callable[[tf.Tensor, tf.Tensor], None], *, workers: int, warns: bool) -> None:
        self._weigh, self._workers, self._warns = weigh, workers, warns
        self._model: Optional[Model] = None
        self._noted: List[_Noted] = []
        self._warned: weakref.WeakKeyDictionary[Model, Set[str]] = weakref.WeakKeyDictionary()

    @contextlib.contextmanager
    def of(self, model: Model) -> Iterator[None]:
        """Opens a context in which steps train a model."""
        before, self._model = self._model, model
        try:
            yield
        finally:
            self._model = before

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Opens a context for one step, in its replica function."""
        before, self._noted = self._noted, []
        try:
            yield
            self._warn()
        finally:
            self._noted = before

    def note(self, name: str, divisor: Optional[tf.Tensor], values: tf.Tensor, is_compiled: bool) -> None:
        """Notes a loss that is a mean.

        Args:
            name: its name.
            divisor: what it is divided by, [] float32; None for rows, or for all elements.
            values: the values of which it is the mean, [rows, ...].
            is_compiled: whether it is one of the losses that were given to `compile`.
        """
        self._noted.append(_Noted(name, divisor, values, is_compiled))

    def settle(self) -> None:
        """Weights the gradients of the step, which are computed now, or warns that no weight is right."""
        if self._model is None or all(each.divisor is None for each in self._noted):
            return
        only = self._noted[0] if len(self._noted) == 1 else None
        if only is not None and only.is_compiled and has_only_compiled_losses(self._model):
            self._weigh(tf.stop_gradient(only.divisor), only.values)
        else:
            self._warn()
        self._noted = []

    def _warn(self) -> None:
        for each in self._noted if self._model is not None and self._warns else ():
            warned = self._warned.setdefault(self._model, set())
            if each.divisor is not None and each.name not in warned:
                warned.add(each.name)
                _log.warning(MESSAGE, each.name, self._workers)
