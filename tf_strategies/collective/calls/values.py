"""Converts the values of calls to tensors, and results back to the kinds of the values."""

from __future__ import annotations

import dataclasses
import math
from typing import Callable, Dict, List, Optional, Sequence, Union

import numpy as np
import tensorflow as tf

from tf_strategies.types import TensorLike

__all__ = ["Leaf", "in_packs", "joined", "leaf_of", "taken_apart"]


@dataclasses.dataclass(frozen=True, repr=False)
class Leaf:
    """Holds one number, array or tensor of a value.

    Attributes:
        tensor: the value as a tensor.
        restore: makes a tensor a result of the kind of the value.
        is_tensor: whether the value is a tensor or a variable, and results are tensors.
    """

    tensor: tf.Tensor
    restore: Callable[[tf.Tensor], TensorLike]
    is_tensor: bool = False

    def cast(self, dtype: tf.DType) -> Leaf:
        """Returns the leaf with its tensor in another dtype."""
        return dataclasses.replace(self, tensor=tf.cast(self.tensor, dtype))

    def __repr__(self) -> str:
        """Returns the dtype and the shape, such as `float32[3]`."""
        return f"{self.tensor.dtype.name}{self.tensor.shape.as_list()}"


def leaf_of(value: TensorLike) -> Leaf:
    """Returns a number, an array or a tensor as a leaf.

    Raises:
        TypeError: the value is something else. The message names its type.
        OverflowError: an int has more than 64 bits.
    """
    with tf.device("CPU:0"):
        if type(value) in (bool, int, float):
            kind = {bool: tf.bool, int: tf.int64, float: tf.float64}[type(value)]
            return Leaf(_constant(value, kind), lambda tensor: tensor.numpy().item())
        if isinstance(value, (np.ndarray, np.generic)) and _is_number(value.dtype):
            scalar = isinstance(value, np.generic)
            return Leaf(
                tf.constant(value), lambda tensor: tensor.numpy() if scalar else np.asarray(tensor.numpy())
            )
        if _is_tensor(value):
            tensor = tf.convert_to_tensor(value)
            if _is_number(tensor.dtype):
                return Leaf(tf.identity(tensor), tf.identity, is_tensor=True)
    kind = type(value)
    dtype = f" of dtype {getattr(value.dtype, 'name', value.dtype)}" if hasattr(value, "dtype") else ""
    raise TypeError(
        f"cannot send a {kind.__module__}.{kind.__qualname__}{dtype}; send numbers, NumPy arrays, eager tensors and variables, "
        "or structures of them; for other objects there are broadcast_object and all_gather_object"
    )


def _constant(value: Union[bool, int, float], dtype: tf.DType) -> tf.Tensor:
    return tf.constant(np.array(value, dtype.as_numpy_dtype))


def _is_number(dtype: Union[tf.DType, np.dtype]) -> bool:
    try:
        dtype = tf.as_dtype(dtype)
    except TypeError:
        return False
    return bool(dtype.is_bool or dtype.is_floating or dtype.is_integer or dtype.is_complex)


def _is_tensor(value: object) -> bool:
    # A variable of Keras 3 has the attribute, a method in a variable of TensorFlow.
    inside = getattr(value, "value", None)
    return isinstance(value, (tf.Tensor, tf.Variable)) or isinstance(inside, (tf.Tensor, tf.Variable))


def in_packs(
    leaves: Sequence[Leaf], send: Callable[[List[tf.Tensor]], Sequence[tf.Tensor]]
) -> List[TensorLike]:
    """Returns the results of sending leaves, in packs of one dtype.

    Args:
        leaves: the leaves.
        send: sends tensors of one dtype, and returns a tensor of the same shape for each.
    """
    packs: Dict[tf.DType, List[int]] = {}
    for position, leaf in enumerate(leaves):
        packs.setdefault(leaf.tensor.dtype, []).append(position)
    results: List[Optional[TensorLike]] = [None] * len(leaves)
    for positions in packs.values():
        sent = send([leaves[position].tensor for position in positions])
        for position, tensor in zip(positions, sent):
            results[position] = leaves[position].restore(tensor)
    return results


def joined(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the elements of all tensors, [n]."""
    return tf.concat([tf.reshape(each, [-1]) for each in tensors], axis=0)


def taken_apart(elements: tf.Tensor, tensors: Sequence[tf.Tensor]) -> List[tf.Tensor]:
    """Returns tensors of the shapes of these tensors, given their elements, [n]."""
    sizes = [math.prod(each.shape.as_list()) for each in tensors]
    return [tf.reshape(part, each.shape) for part, each in zip(tf.split(elements, sizes), tensors)]
