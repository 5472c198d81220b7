"""Keras 3 with variables that live on servers: counts are added up there, and of an embedding only the rows in use travel.

Keras 3 adds to a variable by reading and assigning it, so that of two workers that count at once one is lost; and it looks
rows up in a copy of the whole table. Keras 2 leaves both to the variable.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable

import tensorflow as tf

__all__ = ["install"]


def install(keras: ModuleType) -> None:
    """Wraps `assign_add` and `assign_sub` of `keras.Variable`, and the lookup of `keras.layers.Embedding`."""
    variable = keras.Variable
    for name in ("assign_add", "assign_sub"):
        setattr(variable, name, _on_servers(getattr(variable, name), name))
    keras.layers.Embedding.call = _of_rows(keras.layers.Embedding.call)


def _on_servers(original: Callable, name: str) -> Callable:
    @functools.wraps(original)
    def change(self: Any, value: Any) -> Any:
        held = _held(self)
        if held is None:
            return original(self, value)
        getattr(held, name)(tf.cast(value, held.dtype))
        return self

    return change


def _of_rows(original: Callable) -> Callable:
    @functools.wraps(original)
    def call(self: Any, inputs: Any) -> Any:
        table = _held(getattr(self, "_embeddings", None))
        plain = not getattr(self, "lora_enabled", False) and getattr(self, "quantization_mode", None) is None
        if table is None or not plain or not isinstance(inputs, tf.Tensor):
            return original(self, inputs)
        numbers = inputs if inputs.dtype in (tf.int32, tf.int64) else tf.cast(inputs, tf.int32)
        numbers = tf.where(numbers < 0, numbers + tf.cast(table.shape[0], numbers.dtype), numbers)
        return tf.cast(table.sparse_read(numbers), self.compute_dtype)

    return call


def _held(variable: Any) -> Any:
    """The variable on servers that a Keras variable holds, if it does."""
    held = getattr(variable, "_value", None)
    return held if getattr(held, "lives_on_servers", False) else None
