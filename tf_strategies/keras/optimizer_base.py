"""Defines a base of optimizers that is an optimizer of Keras 3, of tf_keras or of Keras 2.15.

A derived class gives its formula as `_computed`, once for all of them.
"""

from __future__ import annotations

import abc
import functools
import numbers
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import tensorflow as tf

from tf_strategies.arguments import count
from tf_strategies.errors import OptionsError
from tf_strategies.keras.current import KERAS, KERAS3
from tf_strategies.keras.inspection import is_vector, name_of
from tf_strategies.keras.joint_step import current_step
from tf_strategies.keras.own_accumulation import apply_or_accumulate
from tf_strategies.keras.types import Config, GradientsAndVariables, LearningRate, Variable
from tf_strategies.types import Kwargs, TensorLike, TensorOrSlices

__all__ = ["Exclude", "OptimizerBase", "Update"]

Exclude = Callable[[str, Tuple[int, ...]], bool]


class Update(NamedTuple):
    """The values from which one step of one variable is computed, float32, or float64 for a float64 variable.

    Attributes:
        weight: the value of the variable, [...].
        gradient: its gradient, joint over all workers, dense, [...].
        slots: the optimizer's state of the variable, in the order of `slot_names`, each [...].
        rate: the learning rate, [].
        iterations: the number of updates before this one, [], a variable or a tensor. A variable is read where it is used, which
            on parameter servers may be a request to another server.
        excluded: whether the variable is excluded from weight decay and trust ratios.
    """

    weight: tf.Tensor
    gradient: tf.Tensor
    slots: Sequence[tf.Tensor]
    rate: tf.Tensor
    iterations: Union[tf.Variable, tf.Tensor]
    excluded: bool


class _Keras3(KERAS.optimizers.Optimizer):
    def _start(self, learning_rate: LearningRate, name: Optional[str], options: Kwargs) -> None:
        super().__init__(learning_rate=learning_rate, name=name, **options)

    def build(self, variables: Sequence[Variable]) -> None:
        """Makes the slots of the variables."""
        if not self.built:
            super().build(variables)
            self._make_slots(variables)

    def update_step(self, gradient: TensorOrSlices, variable: Variable, learning_rate: TensorLike) -> None:
        """Updates one variable."""
        self._update(gradient, variable, learning_rate, self._get_variable_index(variable))

    def _updates(self) -> TensorLike:
        return self.iterations


class _Keras2(KERAS.optimizers.Optimizer):
    def _start(self, learning_rate: LearningRate, name: Optional[str], options: Kwargs) -> None:
        options = dict(options)
        name_of_steps = "gradient_accumulation_steps"
        steps = options.pop(name_of_steps, None)
        self.gradient_accumulation_steps = None if steps is None else count(name_of_steps, steps, least=2)
        super().__init__(name=name or type(self).__name__, weight_decay=None, **options)
        self._accumulated_gradients: List[tf.Variable] = []
        self._learning_rate = self._build_learning_rate(learning_rate)

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        """Makes the slots of the variables."""
        super().build(var_list)
        if not getattr(self, "_built", False):
            self._make_slots(var_list)
            if self.gradient_accumulation_steps:
                self.accumulated_batches = self.add_variable([], tf.int64, name="accumulated_batches")
                self._accumulated_gradients = [
                    self.add_variable_from_reference(variable, "accumulated_gradient")
                    for variable in var_list
                ]
            self._built = True

    def apply_gradients(
        self, grads_and_vars: GradientsAndVariables, name: Optional[str] = None, **options: Any
    ) -> object:
        """Applies gradients, or accumulates them."""
        apply = functools.partial(super().apply_gradients, name=name, **options)
        pairs = list(grads_and_vars)
        given = [pair for pair in pairs if pair[0] is not None]
        step = current_step()
        if step is not None:
            step.look_at_gradients([grad for grad, _ in given])
        if not (self.gradient_accumulation_steps and given):
            return apply(pairs)
        with tf.name_scope(name or self.name), tf.init_scope():
            self.build([variable for _, variable in pairs])
        numbers = [self._index_dict.get(self._var_key(variable)) for _, variable in given]
        if None in numbers:
            return apply(pairs)  # which says that the variable is unknown
        accumulated = [self._accumulated_gradients[number] for number in numbers]
        return apply_or_accumulate(self, given, accumulated, self.accumulated_batches, apply)

    def update_step(self, gradient: TensorOrSlices, variable: tf.Variable) -> None:
        """Updates one variable."""
        self._update(gradient, variable, self.learning_rate, self._number(variable))

    def _updates(self) -> TensorLike:
        steps = self.gradient_accumulation_steps
        return self.iterations // steps if steps else self.iterations

    def _number(self, variable: tf.Variable) -> int:
        return int(self._index_dict[self._var_key(variable)])

    def get_config(self) -> Config:
        """Returns the settings, of which `from_config` makes the same optimizer."""
        rate = self._serialize_hyperparameter(self._learning_rate)
        steps = self.gradient_accumulation_steps
        return {**super().get_config(), "learning_rate": rate, "gradient_accumulation_steps": steps}


class OptimizerBase(_Keras3 if KERAS3 else _Keras2):
    """Stores the slots, calls the formula for each variable, and leaves the rest to Keras.

    Weight decay belongs to the formula: Keras's own, which is outside of it, does not run.

    Args:
        learning_rate: as of `keras.optimizers.SGD`.
        name: the name of the optimizer.
        weight_decay: the factor λ of the weight decay in the formula.
        exclude: `(name, shape) -> bool`; chooses the excluded variables. None for those of `is_vector`.
        options: other arguments of `keras.optimizers.Optimizer`.
    """

    slot_names: Tuple[str, ...] = ()
    joint_norms = False

    def __init__(
        self,
        learning_rate: LearningRate,
        *,
        name: Optional[str],
        weight_decay: float,
        exclude: Optional[Exclude],
        options: Kwargs,
    ) -> None:
        if exclude is not None and not callable(exclude):
            raise OptionsError(
                f"exclude must be None or a function of a variable's name and shape; got {exclude!r}"
            )
        is_number = isinstance(learning_rate, numbers.Real)
        self._start(float(learning_rate) if is_number else learning_rate, name, options)
        self.weight_decay = weight_decay
        self.exclude = exclude
        self._excluded: Tuple[bool, ...] = ()

    @abc.abstractmethod
    def _computed(self, update: Update) -> Tuple[tf.Tensor, Sequence[tf.Tensor]]:
        """Returns what is subtracted from the weight, [...], and the new slots."""

    def excludes(self, variable: Variable) -> bool:
        """Returns True if a variable is excluded from weight decay and trust ratios."""
        if self.exclude is None:
            return is_vector(variable)
        return bool(self.exclude(name_of(variable), tuple(variable.shape)))

    def get_config(self) -> Config:
        """Returns the settings, of which `from_config` makes the same optimizer."""
        exclude = None if self.exclude is None else KERAS.saving.serialize_keras_object(self.exclude)
        return {**super().get_config(), "weight_decay": self.weight_decay, "exclude": exclude}

    @classmethod
    def from_config(cls, config: Config, custom_objects: Optional[Dict[str, object]] = None) -> OptimizerBase:
        """Makes the optimizer that `get_config` describes."""
        config = dict(config)
        if config.get("exclude") is not None and not callable(config["exclude"]):
            config["exclude"] = KERAS.saving.deserialize_keras_object(
                config["exclude"], custom_objects=custom_objects
            )
        return super().from_config(config, custom_objects=custom_objects)

    def _make_slots(self, variables: Sequence[Variable]) -> None:
        self._excluded = tuple(self.excludes(variable) for variable in variables)
        for variable, excluded in zip(variables, self._excluded):
            if self.joint_norms and not excluded:
                _require_whole(self, variable)
        for name in self.slot_names:
            slots = [self.add_variable_from_reference(variable, name) for variable in variables]
            setattr(self, f"_{name}", slots)

    def _update(self, gradient: TensorOrSlices, variable: Variable, rate: TensorLike, number: int) -> None:
        held = [_held(getattr(self, f"_{name}")[number]) for name in self.slot_names]
        kind = tf.float64 if variable.dtype == tf.float64 else tf.float32
        if isinstance(gradient, tf.IndexedSlices):
            rows = tf.cast(gradient.values, kind)
            gradient = tf.math.unsorted_segment_sum(rows, gradient.indices, variable.shape[0])
        update = Update(
            weight=tf.cast(variable, kind),
            gradient=tf.cast(gradient, kind),
            slots=[tf.cast(slot, kind) for slot in held],
            rate=tf.cast(rate, kind),
            iterations=self._updates(),
            excluded=self._excluded[number],
        )
        change, slots = self._computed(update)
        for slot, value in zip(held, slots):
            slot.assign(tf.cast(value, slot.dtype))
        variable.assign_sub(tf.cast(change, variable.dtype))

    def _apply_weight_decay(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing, in place of Keras's weight decay."""


def _held(variable: Variable) -> tf.Variable:
    """Returns the TensorFlow variable that a variable of Keras holds."""
    return variable if isinstance(variable, tf.Variable) else variable.value


def _require_whole(optimizer: OptimizerBase, variable: Variable) -> None:
    held = _held(variable)
    if getattr(held, "lives_on_servers", False) and len(held.parts) > 1:
        raise OptionsError(
            f"{type(optimizer).__name__} cannot train {name_of(variable)!r}, which is cut into {len(held.parts)} parts on "
            "parameter servers: each server would take the norm of its own rows; make the strategy without a partitioner, or "
            "exclude the variable by `exclude`"
        )
