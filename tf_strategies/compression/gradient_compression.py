"""Compresses the gradients of one worker: chooses the gradients, and keeps the state of each."""

from __future__ import annotations

import weakref
from typing import Dict, Optional, Sequence

import tensorflow as tf

from tf_strategies.compression.base import Compressor, Gradient
from tf_strategies.compression.gradient_state import GradientState
from tf_strategies.types import TensorOrSlices

__all__ = ["GradientCompression", "is_broken", "require_one_each"]

_DTYPES = (tf.float32, tf.float64, tf.float16, tf.bfloat16)


class GradientCompression:
    """A compressor and its state.

    A gradient may belong to a part of a variable. Each part has its own slots. Its name and shape, for the
    choice of compressed variables, are those of the whole variable.

    Args:
        compressor: the compressor.
        device: the device that keeps the state.
        state_is_local: whether the sessions of each worker begin with an empty state, instead of the saved
            one.
    """

    def __init__(self, compressor: Compressor, device: str, *, state_is_local: bool = False) -> None:
        self.compressor = compressor
        self._state = GradientState(device, is_local=state_is_local)
        self._names: Dict[str, str] = {}

    def name(self, variable: tf.Variable, name: str) -> None:
        """Returns the name of a variable without a name."""
        key = variable._unique_id
        if key not in self._names:
            weakref.finalize(variable, self._names.pop, key, None).atexit = False
        self._names[key] = name

    @property
    def device(self) -> str:
        """The device that keeps the state. It can be changed before the first gradient."""
        return self._state.device

    @device.setter
    def device(self, device: str) -> None:
        self._state.device = device

    @property
    def step(self) -> tf.Variable:
        """The number of exchanges so far, [] int64."""
        return self._state.step

    @property
    def remembers(self) -> bool:
        return bool(self.compressor.slots or self.compressor.dense_slots)

    def prepared(self, values: Sequence[TensorOrSlices], workers: int) -> Sequence[TensorOrSlices]:
        """Returns the gradients of a step after the compressor's first stage, such as clipping.

        Args:
            values: tensors and IndexedSlices: all gradients of this worker.
            workers: the workers whose gradients make up a step.
        """
        whole = [
            tf.convert_to_tensor(value)
            if isinstance(value, tf.IndexedSlices) and self.compressor.takes_slices
            else value
            for value in values
        ]
        return self.compressor.prepare(whole, workers)

    def takes(self, value: TensorOrSlices, variable: tf.Variable) -> bool:
        """Returns True if a gradient is compressed."""
        return isinstance(value, tf.Tensor) and value.dtype in _DTYPES and self._takes_variable(variable)

    def comes_after(self, value: TensorOrSlices) -> bool:
        """Returns True if the compressor also processes this gradient, which it does not compress."""
        return bool(self.compressor.dense_slots) and isinstance(value, tf.Tensor) and value.dtype in _DTYPES

    def after(self, value: tf.Tensor, variable: tf.Variable, part: Optional[tf.Variable] = None) -> tf.Tensor:
        """Returns the result of `Compressor.after` for a gradient that is not compressed."""
        flat = tf.reshape(tf.cast(value, tf.float32), [-1])
        result = self.compressor.after(flat, self.slots(variable, part))
        return tf.cast(tf.reshape(result, tf.shape(value)), value.dtype)

    def gradient(
        self, value: tf.Tensor, number: int, variable: tf.Variable, part: Optional[tf.Variable] = None
    ) -> Gradient:
        """Returns the `Gradient` that is passed to the compressor."""
        shape = (variable if part is None else part).shape
        flat = tf.reshape(tf.cast(value, tf.float32), [shape.num_elements()])
        return Gradient(flat, number, self.slots(variable, part), tuple(shape.as_list()))

    def slots(self, variable: tf.Variable, part: Optional[tf.Variable] = None) -> Dict[str, tf.Variable]:
        """Returns the slots of a variable or of a part of one. Makes missing slots."""
        owner = variable if part is None else part
        if self._takes_variable(variable):
            agreed = self.compressor.agreed_slots(tuple(owner.shape.as_list()))
            return self._state.of(owner, self.compressor.slots, adds_up=True, agreed=agreed)
        return self._state.of(owner, self.compressor.dense_slots, adds_up=False)

    def _takes_variable(self, variable: tf.Variable) -> bool:
        return variable.shape.is_fully_defined() and self.compressor.takes(
            self._names.get(variable._unique_id, variable.name.partition(":")[0]),
            tuple(variable.shape.as_list()),
        )


def require_one_each(variables: Sequence[tf.Variable]) -> None:
    """Raises a ValueError if a variable appears twice in one exchange."""
    seen = set()
    for variable in variables:
        if variable._unique_id in seen:
            raise ValueError(
                f"variable {variable.name!r} has two gradients in one step: add them up before they are applied"
            )
        seen.add(variable._unique_id)


def is_broken(values: Sequence[TensorOrSlices]) -> tf.Tensor:
    """Returns [] float32: 0 if all values of tensors and IndexedSlices are finite in float32, else 1."""
    if not values:
        return tf.constant(0.0)
    held = [value.values if isinstance(value, tf.IndexedSlices) else value for value in values]
    held = [tf.cast(each, tf.float32) if each.dtype == tf.float64 else each for each in held]

    def look_closely() -> tf.Tensor:
        finite = tf.reduce_all(tf.stack([tf.reduce_all(tf.math.is_finite(each)) for each in held]))
        return tf.where(finite, 0.0, 1.0)

    # A sum of squares is finite only if all squares are. It takes one pass and writes nothing.
    if not all(each.dtype == tf.float32 for each in held):
        return look_closely()
    squares = tf.add_n([tf.nn.l2_loss(each) for each in held])
    return tf.cond(tf.math.is_finite(squares), lambda: tf.constant(0.0), look_closely)
