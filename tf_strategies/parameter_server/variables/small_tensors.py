"""Joins small tensors into one message, because a message for each would cost more than its bytes."""

from __future__ import annotations

import math
import weakref
from typing import Dict, Hashable, List, Sequence, Union

import tensorflow as tf

__all__ = ["FetchGroups", "is_small", "join", "take_apart"]

_SMALL_BYTES = 64 << 10


def is_small(value: Union[tf.Tensor, tf.Variable]) -> bool:
    """Returns True if a tensor or variable is small enough to share a message. False if its shape is unknown."""
    return value.shape.is_fully_defined() and math.prod(value.shape) * value.dtype.size <= _SMALL_BYTES


def join(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns one vector with all elements of the tensors, in order. The tensors must have one dtype."""
    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)


def take_apart(joined: tf.Tensor, shapes: Sequence[tf.TensorShape]) -> List[tf.Tensor]:
    """Splits a vector into tensors of these shapes, as the inverse of `join`."""
    pieces = tf.split(joined, [math.prod(shape) for shape in shapes])
    return [tf.reshape(piece, shape) for piece, shape in zip(pieces, shapes)]


class FetchGroups:
    """Groups the small variables of one model on one server, such as its biases, to fetch them together."""

    def __init__(self) -> None:
        self._groups: Dict[Hashable, List[weakref.ref[tf.Variable]]] = {}

    def begin(self) -> None:
        """Starts new groups, because the next variables probably belong to another model."""
        self._groups = {}

    def add(self, variable: tf.Variable) -> None:
        """Adds a small variable to the group of its server."""
        if len(variable.parts) == 1 and is_small(variable):
            kind = variable.parts[0].device, variable.dtype, variable.trainable
            variable.fetched_together = self._groups.setdefault(kind, [])
            variable.fetched_together.append(weakref.ref(variable))

    @staticmethod
    def of(variable: tf.Variable, dtype: tf.DType) -> List[tf.Variable]:
        """Returns the variables to fetch as `dtype` together with this one, including itself.

        Variables that steps read in another type are left out, so that they do not travel twice.
        """
        found = [reference() for reference in variable.fetched_together]
        alike = [each for each in found if each is not None and each.last_read_as in (None, dtype)]
        return alike or [variable]
