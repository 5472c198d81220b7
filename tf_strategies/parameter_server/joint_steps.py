"""Lets the workers of `SyncReplicasStrategy` act as one process in the steps of Keras."""

from __future__ import annotations

import contextlib
import functools
import weakref
from typing import Callable, ContextManager, Iterator, List, Optional

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.keras.joint_step import JointStep
from tf_strategies.keras.loss_divisors import LossDivisors
from tf_strategies.keras.own_code import has_own_code
from tf_strategies.keras.types import Model
from tf_strategies.parameter_server.updates.step import StepDivisors, current_step
from tf_strategies.parameter_server.variables.server_variable import ServerVariable
from tf_strategies.row_checks import LossMeans, SharedTensors
from tf_strategies.types import Structure

__all__ = ["JointSteps"]

_PARTS = 1 << 24  # divisors are whole numbers of such parts of 1
_ADVICE = "tfs.joint_rows needs CollectiveAllReduceStrategy: workers with servers exchange nothing before their gradients"


class JointSteps:
    """Makes the steps of Keras joint steps, and warns of losses that are not those of one process.

    Args:
        rank: this worker's number.
        replicas: the number of workers whose gradients are added up; with 1, nothing changes.
    """

    def __init__(self, rank: int, replicas: int) -> None:
        self._is_first, self._replicas = rank == 0, replicas
        self._running: Optional[JointStep] = None
        self._divisors = LossDivisors(_weigh_by(replicas), workers=replicas, warns=rank == 0)
        self._shared = SharedTensors()
        self._losses: weakref.WeakKeyDictionary[Model, LossMeans] = weakref.WeakKeyDictionary()

    @contextlib.contextmanager
    def of(self, model: Model, *, trains: bool) -> Iterator[None]:
        """Opens a context in which replica functions are steps of a model.

        Args:
            model: the model.
            trains: whether they are steps of `fit`. In others each worker has all rows.
        """
        if self._replicas == 1:
            yield
            return
        before, self._running = self._running, self._step_of(model, self._replicas if trains else 1)
        try:
            with self._divisors.of(model):
                yield
        finally:
            self._running = before
            self._shared.clear()

    def joined(self, fn: Callable[..., Structure]) -> Callable[..., Structure]:
        """Returns a replica function as part of the step that runs, or as it is outside of steps."""
        return fn if self._running is None else self._running.within(fn)

    def noting_losses(self) -> ContextManager[None]:
        """Opens a context for one replica function."""
        return self._divisors.step()

    def note_value(self, value: tf.Tensor, variable: ServerVariable) -> None:
        """Notes that a tensor of a step is the value of a variable, and not one of its rows."""
        if self._running is not None and value.shape == variable.shape and not tf.executing_eagerly():
            self._shared.add_value(value)

    def _step_of(self, model: Model, replicas: int) -> JointStep:
        return JointStep(
            replicas=replicas,
            shares=lambda: _shares(self._replicas),
            are_copied=_are_copied,
            owns=lambda variable: isinstance(variable, ServerVariable),
            local_replica=lambda: 0,
            is_recording=compat.is_differentiating,
            is_agreed=lambda part: False,
            sums_logs=False,
            weighs_logs=False,
            postpones=True,
            weight_of_gradients=_weight_of_gradients,
            note_loss=self._divisors.note,
            look_at_loss=functools.partial(self._look_at_loss, model),
            look_at_metric=self._losses_of(model).look_at_metric,
            trust=self._shared.add,
        )

    def _look_at_loss(self, model: Model, loss: tf.Tensor) -> None:
        self._divisors.settle()
        self._losses_of(model).look_at(loss, may_compare_rows=lambda: has_own_code(model))

    def _losses_of(self, model: Model) -> LossMeans:
        if model not in self._losses:
            self._losses[model] = LossMeans(
                shared=self._shared,
                replicas=lambda: self._replicas,
                is_first=lambda: self._is_first,
                advice=_ADVICE,
            )
        return self._losses[model]


def _shares(replicas: int) -> Optional[List[tf.Tensor]]:
    step = current_step()
    rows = None if step is None else step.rows
    return (
        None if rows is None else [tf.cast(rows.own * replicas, tf.float64) / tf.cast(rows.total, tf.float64)]
    )


def _are_copied() -> Optional[tf.Tensor]:
    step = current_step()
    return None if step is None or step.rows is None else step.rows.are_copied


def _weigh_by(replicas: int) -> Callable[[tf.Tensor, tf.Tensor], None]:
    """Returns the function that weights the gradients of a step by a divisor in place of rows; see `LossDivisors`."""

    def weigh(divisor: tf.Tensor, values: tf.Tensor) -> None:
        step = current_step()
        if step is None:
            return
        total = tf.constant(replicas * _PARTS, tf.int64)
        if step.rows is not None:
            elements = (
                values.shape[1:].num_elements() or 1
            )  # so that weights are about as large as those of rows
            total = step.rows.total * (_PARTS * elements)
        step.divisors = StepDivisors(
            tf.cast(tf.round(tf.cast(divisor, tf.float64) * _PARTS), tf.int64), total
        )

    return weigh


def _weight_of_gradients() -> Optional[tf.Tensor]:
    step = current_step()
    if step is None or step.divisors is None:
        return None
    return tf.cast(step.divisors.own, tf.float64) / tf.cast(step.divisors.total, tf.float64)
