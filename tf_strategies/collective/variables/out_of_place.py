"""Adds to large variables out of place, so that nothing is copied while their former values are kept.

TensorFlow adds to a variable in place. If another tensor shares its memory, such as the state that elastic training keeps after
each step, TensorFlow first copies the variable: for Adam this is three times the size of the model in each step. Here the sum is
written into the memory of the addend, which becomes that of the variable, and the former values stay where they are.
"""

from __future__ import annotations

import weakref
from typing import Callable, Optional

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.keras import ownership

__all__ = ["add_out_of_place"]

_LEAST_ELEMENTS = 16384  # A smaller copy takes less time than a further operation.


def add_out_of_place(variable: tf.Variable) -> None:
    """Makes optimizers add to a new variable out of place, if it is large. The sums are the same."""
    if not (compat.is_mirrored(variable) and variable.dtype.is_floating):
        return
    if (variable.shape.num_elements() or 0) < _LEAST_ELEMENTS:
        return
    for part in variable.values:
        if type(part) is compat.ResourceVariable:
            part.__class__ = _OutOfPlace
            part.whole = weakref.ref(variable)


class _OutOfPlace(compat.ResourceVariable):
    """A part of a distributed variable. One that is neither a weight nor a slot of an optimizer is added to in place.

    Attributes:
        whole: returns the distributed variable.
    """

    whole: Callable[[], Optional[tf.Variable]]

    def assign_add(self, delta, use_locking=None, name=None, read_value=True):
        if not self._is_optimized:
            return super().assign_add(delta, use_locking=use_locking, name=name, read_value=read_value)
        return self.assign(self._sum(delta), use_locking=use_locking, name=name, read_value=read_value)

    def assign_sub(self, delta, use_locking=None, name=None, read_value=True):
        if not self._is_optimized:
            return super().assign_sub(delta, use_locking=use_locking, name=name, read_value=read_value)
        difference = self._held() - self._converted(delta)
        return self.assign(difference, use_locking=use_locking, name=name, read_value=read_value)

    @property
    def _is_optimized(self) -> bool:
        whole = self.whole()
        return self.trainable or (whole is not None and ownership.belongs_to_optimizer(whole))

    def _sum(self, delta) -> tf.Tensor:
        # Grappler would merge an AddV2 with additions before it, and round otherwise than an addition in place.
        return tf.add_n([self._held(), self._converted(delta)])

    def _held(self) -> tf.Tensor:
        with tf.device(self.device):
            return self.read_value()

    def _converted(self, delta) -> tf.Tensor:
        with tf.device(self.device):
            return tf.ensure_shape(tf.convert_to_tensor(delta, dtype=self.dtype), self.shape)
