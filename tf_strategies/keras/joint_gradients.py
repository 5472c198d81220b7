"""Makes the gradients of a `tf.GradientTape` in `train_step` those of the joint batch.

Jacobians stay those of the replica: they have a part for each row, or for each element of the target.
"""

from __future__ import annotations

import functools
import threading
from types import ModuleType
from typing import Any, Callable, List, Optional

import tensorflow as tf

from tf_strategies.errors import OptionsError
from tf_strategies.keras import ownership
from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.joint_step import JointStep, current_step
from tf_strategies.types import Structure, TensorLike

__all__ = ["compute_average_loss", "gradient", "jacobian"]

_this_thread = threading.local()


def gradient(original: Callable[..., Structure], keras: ModuleType) -> Callable[..., Structure]:
    """Returns `tf.GradientTape.gradient`, which returns the gradients of the joint batch in the steps of `fit`."""
    del keras

    @functools.wraps(original)
    def joint_gradient(
        self: tf.GradientTape,
        target: Structure,
        sources: Structure,
        output_gradients: Structure = None,
        unconnected_gradients: tf.UnconnectedGradients = tf.UnconnectedGradients.NONE,
    ) -> Structure:
        step = current_step()
        can_join = step is not None and step.can_join() and not getattr(_this_thread, "in_jacobian", False)
        variables = _variables(step, sources) if can_join else None
        seeds = None if variables is None else _weighted_seeds(step, target, output_gradients)
        if seeds is None:
            return original(self, target, sources, output_gradients, unconnected_gradients)
        found = original(self, target, sources, seeds, unconnected_gradients)
        flat = tf.nest.flatten(found)
        given = [position for position, each in enumerate(flat) if each is not None]
        sums = step.add_up([flat[i] for i in given], [variables[i] for i in given]) if given else []
        for position, total in zip(given, sums):
            flat[position] = total
        return tf.nest.pack_sequence_as(sources, flat)

    return joint_gradient


def jacobian(original: Callable[..., Structure], keras: ModuleType) -> Callable[..., Structure]:
    """Returns `tf.GradientTape.jacobian`, which calls `gradient` in a loop, where no collective can run."""
    del keras

    @functools.wraps(original)
    def own_jacobian(self: tf.GradientTape, *args: Any, **kwargs: Any) -> Structure:
        before = getattr(_this_thread, "in_jacobian", False)
        _this_thread.in_jacobian = True
        try:
            return original(self, *args, **kwargs)
        finally:
            _this_thread.in_jacobian = before

    return own_jacobian


def compute_average_loss(original: Callable[..., tf.Tensor], keras: ModuleType) -> Callable[..., tf.Tensor]:
    """Returns `tf.nn.compute_average_loss`, which refuses a global batch size in the steps of `fit`."""
    del keras

    @functools.wraps(original)
    def average_of_own_rows(per_example_loss: TensorLike, *args: Any, **kwargs: Any) -> tf.Tensor:
        step = current_step()
        given = kwargs.get("global_batch_size", args[1] if len(args) > 1 else None)
        if step is not None and _several_replicas() and given is not None:
            raise OptionsError(
                f"a train_step calls tf.nn.compute_average_loss with global_batch_size={given}. That is for loops with "
                "strategy.run. In fit the loss of a step is the mean over the rows that the step sees, and the strategy "
                "averages over the joint batch. Leave global_batch_size out, or make the strategy with "
                'CollectiveAllReduceStrategy(step_losses="sum")'
            )
        return original(per_example_loss, *args, **kwargs)

    return average_of_own_rows


def _several_replicas() -> bool:
    """Returns True if the model's rows are split between replicas, also in a step that this worker takes by itself."""
    strategy = tf.distribute.get_strategy()
    return isinstance(strategy, GroupStrategy) and strategy.replicas_now > 1


def _variables(step: JointStep, sources: Structure) -> Optional[List[tf.Variable]]:
    """Returns TensorFlow's variables behind the sources, or None if some are not variables of the strategy."""
    variables = []
    for source in tf.nest.flatten(sources):
        variable = source if isinstance(source, (tf.Variable, tf.Tensor)) else getattr(source, "value", None)
        variable = ownership.uncast(variable) if isinstance(variable, tf.Variable) else variable
        if not isinstance(variable, tf.Variable) or not step.owns(variable):
            return None
        variables.append(variable)
    return variables or None


def _weighted_seeds(
    step: JointStep, target: Structure, output_gradients: Structure
) -> Optional[List[tf.Tensor]]:
    """Returns the initial gradients of the backward pass, instead of ones; None if a target is not a floating-point tensor."""
    targets = tf.nest.flatten(target)
    if not targets or not all(isinstance(each, tf.Tensor) and each.dtype.is_floating for each in targets):
        return None
    given = [None] * len(targets) if output_gradients is None else tf.nest.flatten(output_gradients)
    for each in targets:
        step.look_at_loss(each)
    weight = step.weight_of_gradients()
    return [
        (tf.ones_like(each) if seed is None else tf.convert_to_tensor(seed)) * tf.cast(weight, each.dtype)
        for each, seed in zip(targets, given)
    ]
