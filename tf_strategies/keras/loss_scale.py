"""Applies gradients with a loss scale on parameter servers, where gradients are added up when they are applied.

Keras itself decides on each worker if gradients are finite, and branches there. With parameter servers the strategy
decides, for all workers of a step.

A loss scale is two variables on the servers: the scale, and the number of finite steps since it last changed. Workers
that keep their own pace share both. A step reads them with the weights, so that its gradients are divided by the number
that multiplied its loss. The servers change the scale only from the value that the step has used.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable, Iterable, List, NamedTuple, Optional, Sequence

import tensorflow as tf

from tf_strategies.errors import OptionsError
from tf_strategies.keras.refusals import CLIPPINGS
from tf_strategies.keras.types import (
    Gradients,
    GradientsAndVariables,
    Keras2LossScaleOptimizer,
    Keras3LossScaleOptimizer,
    Optimizer,
    Variable,
)
from tf_strategies.keras.worker_strategy import WorkerStrategy
from tf_strategies.types import Fetch, Result, TensorLike, TensorOrSlices

__all__ = [
    "LossScale",
    "apply_gradients_keras2",
    "apply_scaled_keras3",
    "scale_loss",
    "strategy_of_servers",
    "supports_loss_scaling",
]


class LossScale(NamedTuple):
    """A dynamic loss scale on parameter servers.

    Attributes:
        scale: [] float32, multiplies losses.
        count: [] integer, the number of finite steps since the scale last changed.
        growth_steps: the number of finite steps after which the scale doubles.
        least: the least scale.
    """

    scale: tf.Variable
    count: tf.Variable
    growth_steps: int
    least: float

    def note(self, finite: bool) -> None:
        """Counts a step, and doubles or halves the scale if it is time. Call it in a replica function."""
        used = self.scale.read_at_start()
        is_full = self.count.read_at_start() + 1 >= self.growth_steps

        def change_scale(scale: tf.Variable, used: tf.Tensor, is_full: tf.Tensor) -> Fetch:
            now = scale.read_value()
            if not finite:
                return scale.assign(tf.minimum(now, tf.maximum(used / 2, self.least)))
            doubles = is_full & tf.equal(now, used) & tf.math.is_finite(2 * used)
            return scale.assign(tf.where(doubles, 2 * used, now))

        def change_count(count: tf.Variable, is_full: tf.Tensor) -> Fetch:
            if not finite:
                return count.assign(tf.zeros_like(count))
            return count.assign_add(tf.where(is_full, -count, tf.ones_like(count)))

        def change(strategy: tf.distribute.Strategy) -> None:
            strategy.extended.update(self.scale, change_scale, args=(used, is_full), group=False)
            strategy.extended.update(self.count, change_count, args=(is_full,), group=False)

        tf.distribute.get_replica_context().merge_call(change)


def supports_loss_scaling(original: Callable[[], bool], keras: ModuleType) -> Callable[[], bool]:
    """Returns the function of Keras 2 that tells if mixed precision works with the current strategy."""
    del keras

    @functools.wraps(original)
    def supports() -> bool:
        in_session = not tf.compat.v1.executing_eagerly_outside_functions()
        return original() or (strategy_of_servers() is not None and not in_session)

    return supports


def scale_loss(original: Callable[..., Result], keras: ModuleType) -> Callable[..., Result]:
    """Returns the method of LossScaleOptimizer that multiplies a loss by the scale, which it reads with the weights."""
    del keras

    @functools.wraps(original)
    def scaled(self: Optimizer, loss: TensorLike) -> Result:
        found = _loss_scale_of(self)
        if found is None:
            return original(self, loss)
        found.scale.read_at_start()  # the original reads it again, and gets the same tensor
        with tf.control_dependencies([found.count.read_at_start()]):  # before other workers count this step
            return original(self, loss)

    return tf.autograph.experimental.do_not_convert(scaled)


def apply_scaled_keras3(original: Callable[..., Result], keras: ModuleType) -> Callable[..., Result]:
    """Returns the method of LossScaleOptimizer that applies scaled gradients if all gradients of a step are finite."""
    del keras

    @functools.wraps(original)
    def apply(
        self: Keras3LossScaleOptimizer,
        grads: Gradients,
        trainable_variables: Optional[Sequence[Variable]] = None,
    ) -> Optional[Result]:
        strategy, found = strategy_of_servers(), _loss_scale_of(self)
        if strategy is None or found is None:
            return original(self, grads, trainable_variables)
        variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        scale = found.scale.read_at_start()
        grads = list(grads)
        unscaled = [
            grad if getattr(variable, "overwrite_with_gradient", False) else _divided(grad, scale)
            for grad, variable in zip(grads, variables)
        ]

        def apply_all() -> None:
            found.note(True)
            self.inner_optimizer.apply(unscaled, trainable_variables=variables)

        pairs = zip(unscaled, variables)
        finite = _are_finite([*grads, *_rounded(strategy, self.inner_optimizer, pairs)])
        strategy.apply_if_finite(finite, apply_all, lambda: found.note(False))
        return None

    return tf.autograph.experimental.do_not_convert(apply)


def apply_gradients_keras2(original: Callable[..., Result], keras: ModuleType) -> Callable[..., Result]:
    """Returns the method of LossScaleOptimizer that applies unscaled gradients if all gradients of a step are finite."""
    del keras

    @functools.wraps(original)
    def apply_gradients(
        self: Keras2LossScaleOptimizer, grads_and_vars: GradientsAndVariables, *args: Any, **kwargs: Any
    ) -> Optional[Result]:
        strategy, found = strategy_of_servers(), _loss_scale_of(self)
        is_elsewhere = strategy is None or (found is None and self.dynamic)
        if is_elsewhere or tf.distribute.in_cross_replica_context():
            return original(self, grads_and_vars, *args, **kwargs)
        grads_and_vars = list(grads_and_vars)
        pairs = [(grad, variable) for grad, variable in grads_and_vars if grad is not None]
        inner = self.inner_optimizer
        if not pairs:
            return original(self, grads_and_vars, *args, **kwargs)  # which raises an error
        _build(inner, [variable for _, variable in pairs])
        _refuse_counts_in_python(inner)

        def apply_all() -> None:
            if found is not None:
                found.note(True)
            inner.apply_gradients(pairs, experimental_aggregate_gradients=False)

        def skip() -> None:
            found.note(False)
            inner.iterations.assign_add(1, read_value=False)  # Keras 2 counts skipped steps, too

        if found is None:  # the scale is constant
            apply_all()
        else:
            finite = _are_finite([*(grad for grad, _ in pairs), *_rounded(strategy, inner, pairs)])
            strategy.apply_if_finite(finite, apply_all, skip)
        return None

    return tf.autograph.experimental.do_not_convert(apply_gradients)


def _loss_scale_of(optimizer: Optimizer) -> Optional[LossScale]:
    """Returns the loss scale of an optimizer, or None if it is constant, not yet made, or not on servers."""
    if hasattr(optimizer, "scale_loss"):
        scale = getattr(optimizer, "dynamic_scale", None)
        count, least = getattr(optimizer, "step_counter", None), 0.0
    else:
        scale = getattr(optimizer._loss_scale, "current_loss_scale", None)
        count, least = optimizer.dynamic_counter, 1.0
    scale, count = (getattr(variable, "_value", variable) for variable in (scale, count))
    if not getattr(scale, "lives_on_servers", False):
        return None
    return LossScale(scale, count, optimizer.dynamic_growth_steps, least)


def strategy_of_servers() -> Optional[WorkerStrategy]:
    """Returns the current strategy if gradients of several workers are added up when they are applied, otherwise None."""
    strategy = tf.distribute.get_strategy()
    return strategy if isinstance(strategy, WorkerStrategy) and strategy.sums_when_applied else None


def _refuse_counts_in_python(optimizer: Optimizer) -> None:
    if hasattr(optimizer, "_u_product_counter"):
        raise OptionsError(
            "Nadam of Keras 2 with a loss scale cannot be used with parameter servers: it counts its steps in Python, "
            "while TensorFlow traces a function; use another optimizer, or mixed_bfloat16, which needs no loss scale"
        )


def _build(optimizer: Optimizer, variables: Sequence[Variable]) -> None:
    """Makes the variables of an optimizer of Keras 2 outside of branches. A legacy optimizer has no `build`."""
    with tf.init_scope():
        make = optimizer.build if hasattr(optimizer, "build") else optimizer._create_all_weights
        make(variables)


def _are_finite(grads: Iterable[Optional[TensorOrSlices]]) -> tf.Tensor:
    """Returns whether all gradients of this worker are finite, [] bool."""
    values = [
        grad.values if isinstance(grad, tf.IndexedSlices) else grad for grad in grads if grad is not None
    ]
    return tf.reduce_all([True, *(tf.reduce_all(tf.math.is_finite(value)) for value in values)])


def _rounded(strategy: WorkerStrategy, optimizer: Optimizer, pairs: GradientsAndVariables) -> List[tf.Tensor]:
    """Returns the unscaled gradients that compression rounds to another type, which may have no room for them.

    An optimizer that clips makes gradients smaller before they are sent.
    """
    if any(getattr(optimizer, name, None) for name in CLIPPINGS):
        return []
    sent = [
        (grad, strategy.as_sent(grad, variable)) for grad, variable in pairs if isinstance(grad, tf.Tensor)
    ]
    return [rounded for grad, rounded in sent if rounded.dtype != grad.dtype]


def _divided(grad: Optional[TensorOrSlices], scale: tf.Tensor) -> Optional[TensorOrSlices]:
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(_divided(grad.values, scale), grad.indices, grad.dense_shape)
    return None if grad is None else grad / tf.cast(scale, grad.dtype)
