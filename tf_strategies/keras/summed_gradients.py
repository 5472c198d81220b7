"""Makes Keras 3 clip gradients, and check if they are finite, after they are added up over replicas.

Keras 3 itself clips each replica's gradients before it adds them up, which differs from clipping the joint
gradient. Its `LossScaleOptimizer` checks only the worker's own gradients, so workers would diverge. Keras 2
adds up first, and so do these functions.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from types import ModuleType
from typing import Any, Callable, Iterator, List, Optional, Sequence

import tensorflow as tf

from tf_strategies.keras import loss_scale
from tf_strategies.keras.accumulation import SINCE, apply_together, has_several_replicas, is_possible
from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.joint_step import current_step
from tf_strategies.keras.rate_scale import updating
from tf_strategies.keras.refusals import refuse_accumulation, refuse_kept_gradients, refuse_optimizer
from tf_strategies.keras.types import (
    Gradients,
    GradientsAndVariables,
    Keras2Optimizer,
    Keras3Optimizer,
    Variable,
)
from tf_strategies.keras.worker_strategy import WorkerStrategy
from tf_strategies.types import PerReplica, Result, TensorOrSlices

__all__ = [
    "all_reduce_sum_gradients",
    "apply",
    "apply_accumulated",
    "apply_gradients",
    "apply_scaled",
    "clip_gradients",
    "handle_finite_grads",
    "overwrite_with_average",
    "update_averages",
    "update_with_rows",
]

_this_thread = threading.local()


def apply(original: Callable[..., Result], keras: ModuleType) -> Callable[..., Result]:
    """Returns `Optimizer.apply`, which records the variables of the gradients, and refuses unsupported options."""

    @functools.wraps(original)
    def apply_noted(
        self: Keras3Optimizer, grads: Gradients, trainable_variables: Optional[Sequence[Variable]] = None
    ) -> Result:
        grads = list(grads)
        variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        trainable_variables = None if trainable_variables is None else variables
        _this_thread.clipped = False
        _this_thread.applied = list(zip(grads, variables))
        if self.gradient_accumulation_steps and has_several_replicas():
            _refuse_accumulation(keras)
        strategy = tf.distribute.get_strategy()
        step = current_step()
        if step is not None:
            step.look_at_gradients(grads)
        if isinstance(strategy, WorkerStrategy):
            refuse_accumulation(strategy, self)
            refuse_kept_gradients(grads, variables)
            refuse_optimizer(strategy, self)
            strategy.name_variables(variables)
        with updating(), _constrained_at_the_end(variables):
            return original(self, grads, trainable_variables)

    return apply_noted


def apply_accumulated(original: Callable[..., Result], keras: ModuleType) -> Callable[..., Result]:
    """Returns the method of optimizers that applies or accumulates gradients; see tf_strategies/keras/accumulation.py."""
    return apply_together(original, keras, lambda: _given_sums(True))


def clip_gradients(original: Callable[..., Gradients], keras: ModuleType) -> Callable[..., Gradients]:
    """Returns the method of optimizers that clips, after the gradients are added up over replicas."""
    del keras

    @functools.wraps(original)
    def clip(self: Keras3Optimizer, grads: Gradients) -> Gradients:
        clips = self.clipnorm or self.global_clipnorm or self.clipvalue
        if clips and _are_of_one_replica():
            grads = _sum(grads, _variables_of(grads))
            _this_thread.clipped = True
        return original(self, grads)

    return clip


def all_reduce_sum_gradients(
    original: Callable[..., GradientsAndVariables], keras: ModuleType
) -> Callable[..., GradientsAndVariables]:
    """Returns the method of optimizers that adds gradients up over replicas, unless they already are."""
    del keras

    @functools.wraps(original)
    def sum_once(self: Keras3Optimizer, grads_and_vars: GradientsAndVariables) -> GradientsAndVariables:
        clipped = getattr(_this_thread, "clipped", False)
        _this_thread.clipped = False
        if clipped or _are_sums() or loss_scale.strategy_of_servers() is not None:
            return grads_and_vars
        if _is_between_replicas():  # Keras 3.3 and 3.4 call this, and do not add up gradients themselves.
            grads_and_vars = list(grads_and_vars)
            given = [pair for pair in grads_and_vars if pair[0] is not None]
            sums = iter(_reduce(tf.distribute.get_strategy(), *zip(*given))) if given else iter(())
            return [(None if grad is None else next(sums), variable) for grad, variable in grads_and_vars]
        if not _is_in_group():
            return original(self, grads_and_vars)
        grads, variables = zip(*grads_and_vars)
        return list(zip(_sum(grads, variables), variables))

    return sum_once


def apply_scaled(original: Callable[..., Result], keras: ModuleType) -> Callable[..., Result]:
    """Returns the method of LossScaleOptimizer that applies scaled gradients, after they are added up."""
    original = loss_scale.apply_scaled_keras3(original, keras)

    @functools.wraps(original)
    def apply_sums(
        self: Keras3Optimizer, grads: Gradients, trainable_variables: Optional[Sequence[Variable]] = None
    ) -> Result:
        if _are_of_one_replica():
            refuse_optimizer(tf.distribute.get_strategy(), self)
            variables = self._trainable_variables if trainable_variables is None else trainable_variables
            # The state of a compressor must not depend on the loss scale, which changes.
            scale = tf.convert_to_tensor(self.dynamic_scale) if _is_compressed() else None
            grads = _times(_sum(_times(grads, scale, tf.divide), variables), scale, tf.multiply)
        return original(self, grads, trainable_variables)

    return apply_sums


def handle_finite_grads(original: Callable[..., Result], keras: ModuleType) -> Callable[..., Result]:
    """Returns the method of LossScaleOptimizer that applies finite sums of gradients."""
    del keras

    @functools.wraps(original)
    def apply_if_finite(
        self: Keras3Optimizer, grads: Gradients, trainable_variables: Sequence[Variable]
    ) -> Result:
        with _given_sums(_is_in_group()):
            return original(self, grads, trainable_variables)

    return apply_if_finite


def overwrite_with_average(original: Callable[..., None], keras: ModuleType) -> Callable[..., None]:
    """Returns the method of optimizers that assigns moving averages to variables.

    Each replica overwrites its own copies.

    Keras 3 itself accesses all copies from within a replica, which TensorFlow refuses. On servers, `update_averages` has done it.
    """
    del keras

    @functools.wraps(original)
    def overwrite(self: Keras3Optimizer, trainable_variables: Sequence[Variable]) -> None:
        if loss_scale.strategy_of_servers() is not None and tf.distribute.get_replica_context() is not None:
            return
        if not _is_in_group():
            original(self, trainable_variables)
            return
        for variable, average in zip(trainable_variables, self._model_variables_moving_average):
            if average is not None:
                variable.assign(average.value)

    return overwrite


def update_with_rows(original: Callable[..., Result], keras: ModuleType) -> Callable[..., Result]:
    """Returns the method of optimizers of Keras 2 that updates a variable.

    Keras 2 adds up the rows of a gradient that have the same index, before it applies gradients. On servers, rows of several
    workers come together after that.
    """
    del keras

    @functools.wraps(original)
    def update(self: Keras2Optimizer, gradient: TensorOrSlices, variable: Variable) -> Result:
        if loss_scale.strategy_of_servers() is not None and isinstance(gradient, tf.IndexedSlices):
            (gradient,) = self._deduplicate_sparse_grad([gradient])
        return original(self, gradient, variable)

    return update


def apply_gradients(original: Callable[..., Result], keras: ModuleType) -> Callable[..., Result]:
    """Returns `apply_gradients` of optimizers of Keras 2, which refuses gradients that are kept on servers."""
    del keras

    @functools.wraps(original)
    def apply_new(
        self: Keras2Optimizer, grads_and_vars: GradientsAndVariables, *args: Any, **kwargs: Any
    ) -> Result:
        pairs = list(grads_and_vars)
        step = current_step()
        if step is not None:
            step.look_at_gradients([grad for grad, _ in pairs])
        if pairs and loss_scale.strategy_of_servers() is not None:
            refuse_kept_gradients(*zip(*pairs))
        with updating():
            return original(self, pairs, *args, **kwargs)

    return tf.autograph.experimental.do_not_convert(apply_new)


def update_averages(original: Callable[..., None], keras: ModuleType) -> Callable[..., None]:
    """Returns the method of optimizers that updates the moving averages of weights.

    On servers, weights change when a step ends. The servers update the averages after that, and overwrite the weights with them.
    """
    del keras

    @functools.wraps(original)
    def update(self: Keras3Optimizer, trainable_variables: Sequence[Variable]) -> None:
        context = tf.distribute.get_replica_context()
        if context is None or loss_scale.strategy_of_servers() is None:
            original(self, trainable_variables)
            return
        pairs = [
            (_stored(average), _stored(variable))
            for variable, average in zip(trainable_variables, self._model_variables_moving_average)
            if average is not None
        ]
        momentum = tf.where(tf.equal(self.iterations.value, 0), 0.0, self.ema_momentum)

        def update_one(average: tf.Variable, variable: tf.Variable, momentum: tf.Tensor) -> None:
            kept = tf.cast(momentum, average.dtype)
            average.assign(kept * average + (1 - kept) * tf.cast(variable, average.dtype))

        def overwrite_one(variable: tf.Variable, average: tf.Variable, now: tf.Tensor) -> None:
            variable.assign(tf.where(now, tf.cast(average, variable.dtype), variable))

        every = self.ema_overwrite_frequency
        now = tf.equal((self.iterations.value + 1) % every, 0) if every else None

        def update_all(strategy: tf.distribute.Strategy) -> None:
            for average, variable in pairs:
                strategy.extended.update(average, update_one, args=(variable, momentum), group=False)
            for average, variable in pairs if every else ():
                strategy.extended.update(variable, overwrite_one, args=(average, now), group=False)

        context.merge_call(update_all)

    return update


@contextlib.contextmanager
def _constrained_at_the_end(variables: Sequence[Variable]) -> Iterator[None]:
    """Lets servers apply constraints. There the weights change when a step ends, and Keras would constrain the old ones."""
    context = tf.distribute.get_replica_context()
    constraints = {
        index: each.constraint for index, each in enumerate(variables) if getattr(each, "constraint", None)
    }
    if not constraints or context is None or loss_scale.strategy_of_servers() is None:
        yield
        return
    for index in constraints:
        stored = _stored(variables[index])
        if getattr(stored, "lives_on_servers", False) and len(stored.parts) > 1:
            raise NotImplementedError(
                f"the constraint of {variables[index].path} needs the whole variable, and a partitioner has cut it into parts: "
                "leave out the constraint or the partitioner, or use CollectiveAllReduceStrategy"
            )
        variables[index].constraint = None
    try:
        yield
    finally:
        for index, constraint in constraints.items():
            variables[index].constraint = constraint

    def constrain(strategy: tf.distribute.Strategy) -> None:
        for index, constraint in constraints.items():
            strategy.extended.update(
                _stored(variables[index]),
                lambda variable, constraint=constraint: variable.assign(constraint(variable)),
                group=False,
            )

    context.merge_call(constrain)


def _variables_of(grads: Gradients) -> List[Variable]:
    """Returns the variables of gradients within `apply`. Keras may have left out variables without a gradient.

    It also leaves out variables whose gradient is their new value, as in float8.
    """
    applied = _this_thread.applied
    given = [pair for pair in applied if pair[0] is not None]
    added = [pair for pair in given if not getattr(pair[1], "overwrite_with_gradient", False)]
    pairs = next(each for each in (applied, given, added) if len(each) == len(grads))
    return [variable for _, variable in pairs]


def _sum(grads: Gradients, variables: Sequence[Variable]) -> Gradients:
    """Returns the sums over replicas, each on the device of its variable; None where there is no gradient."""
    grads = list(grads)
    given = [position for position, grad in enumerate(grads) if grad is not None]
    if given:
        context = tf.distribute.get_replica_context()
        context.strategy.name_variables(variables)
        targets = [_stored(variables[position]) for position in given]
        sums = context.merge_call(_reduce, args=([grads[position] for position in given], targets))
        for position, total in zip(given, sums):
            grads[position] = total
    return grads


def _reduce(
    strategy: tf.distribute.Strategy, grads: Sequence[PerReplica], variables: Sequence[tf.Variable]
) -> List[PerReplica]:
    return strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, list(zip(grads, variables)))


def _stored(variable: Variable) -> tf.Variable:
    return variable if isinstance(variable, tf.Variable) else variable.value


def _times(
    grads: Gradients, factor: Optional[tf.Tensor], operation: Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
) -> Gradients:
    def one(grad: Optional[TensorOrSlices]) -> Optional[TensorOrSlices]:
        if grad is None or factor is None:
            return grad
        if isinstance(grad, tf.IndexedSlices):
            return tf.IndexedSlices(one(grad.values), grad.indices, grad.dense_shape)
        return operation(grad, tf.cast(factor, grad.dtype))

    return [one(grad) for grad in grads]


def _refuse_accumulation(keras: ModuleType) -> None:
    """Raises NotImplementedError if the replicas of a worker cannot accumulate gradients here."""
    remedy = "start one worker for each device (tfs-run --workers)"
    if not is_possible(keras):
        raise NotImplementedError(
            f"gradient_accumulation_steps needs one replica a worker with Keras {keras.__version__}; install Keras {SINCE} or "
            f"newer, or {remedy}"
        )
    if _are_sums():
        raise NotImplementedError(
            "gradient_accumulation_steps in a LossScaleOptimizer needs one replica a worker: Keras 3 applies gradients in a "
            f"tf.cond, in which TensorFlow cannot switch between replicas; {remedy}, or use mixed_bfloat16, which needs no loss "
            "scale"
        )


def _are_of_one_replica() -> bool:
    return _is_in_group() and not _are_sums()


def _is_in_group() -> bool:
    context = tf.distribute.get_replica_context()
    return context is not None and isinstance(context.strategy, GroupStrategy)


def _is_between_replicas() -> bool:
    return tf.distribute.in_cross_replica_context() and isinstance(
        tf.distribute.get_strategy(), GroupStrategy
    )


def _is_compressed() -> bool:
    return tf.distribute.get_strategy().compresses


def _are_sums() -> bool:
    return getattr(_this_thread, "sums", False)


@contextlib.contextmanager
def _given_sums(are_sums: bool) -> Iterator[None]:
    before, _this_thread.sums = _are_sums(), are_sums
    try:
        yield
    finally:
        _this_thread.sums = before
