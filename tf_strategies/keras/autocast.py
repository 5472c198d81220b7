"""Makes servers cast the weights of a layer in mixed precision, so that these travel in half precision.

Keras keeps the weights in float32. While it calls a layer with a policy such as "mixed_bfloat16", it casts each weight
that the layer reads. The values are the same, no matter where they are cast.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Callable, Optional

import tensorflow as tf

from tf_strategies.keras.ownership import uncast
from tf_strategies.keras.types import Keras2CastVariable, Keras3Variable, Layer, Replaced
from tf_strategies.types import TensorLike

__all__ = ["add_regularizer", "as_tensor", "cast", "read"]


def cast(original: Callable[..., TensorLike], keras: ModuleType) -> Callable[..., TensorLike]:
    """Returns the method of `keras.Variable` of Keras 3 that casts the value, or the variable that holds it."""
    scopes = importlib.import_module(f"{keras.__name__}.src.backend.common.variables")

    @functools.wraps(original)
    def cast_on_servers(self: Keras3Variable, value: TensorLike) -> TensorLike:
        scope = scopes.get_autocast_scope()
        if not getattr(value, "casts_on_servers", False) or not value.dtype.is_floating:
            return original(self, value)
        if self.regularizer is not None or not self._autocast or scope is None or scope.dtype is None:
            return original(self, value)
        return value.read_as(tf.as_dtype(scope.dtype))

    return cast_on_servers


def read(original: Callable[..., tf.Tensor], keras: ModuleType) -> Callable[..., tf.Tensor]:
    """Returns the method `value` or `read_value` of a variable of Keras 2 that casts its value."""
    del keras

    @functools.wraps(original)
    def read_from_servers(self: Keras2CastVariable) -> tf.Tensor:
        return original(self) if not _casts_on_servers(self) else self._variable.read_as(self._cast_dtype)

    return read_from_servers


def as_tensor(original: Callable[..., tf.Tensor], keras: ModuleType) -> Callable[..., tf.Tensor]:
    """Returns the method of such a variable that converts it to a tensor."""
    del keras

    @functools.wraps(original)
    def convert(
        self: Keras2CastVariable,
        dtype: Optional[tf.DType] = None,
        name: Optional[str] = None,
        as_ref: bool = False,
    ) -> tf.Tensor:
        fits = dtype is None or dtype.is_compatible_with(self._cast_dtype)
        if as_ref or not fits or not _casts_on_servers(self):
            return original(self, dtype, name, as_ref)
        return self._variable.read_as(self._cast_dtype)

    return convert


def add_regularizer(original: Callable[..., None], keras: ModuleType) -> Callable[..., None]:
    """Returns the method of a layer of Keras 2 that adds a regularizer, and records that a loss will read the weight."""
    del keras

    @functools.wraps(original)
    def add(self: Layer, name: str, variable: tf.Variable, regularizer: Replaced) -> None:
        original(self, name, variable, regularizer)
        held = uncast(variable) if isinstance(variable, tf.Variable) else None
        if getattr(held, "casts_on_servers", False):
            held.casts_on_servers = False

    return add


def _casts_on_servers(variable: Keras2CastVariable) -> bool:
    return variable._should_cast() and getattr(variable._variable, "casts_on_servers", False)
