"""Embeddings of Keras 3 look rows up where they are: on servers, so that no others travel, and here without a copy of the table.

Keras 3 looks up in a tensor of the whole; Keras 2 leaves it to `tf.nn.embedding_lookup`, and that to the variable.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable

import tensorflow as tf

__all__ = ["install"]


def install(keras: ModuleType, scopes: ModuleType) -> None:
    """Wraps the lookup of `keras.layers.Embedding`.

    Args:
        scopes: tells whether variables have the values of a StatelessScope: `in_stateless_scope`.
    """
    keras.layers.Embedding.call = _of_rows(keras.layers.Embedding.call, scopes)


def _of_rows(original: Callable, scopes: ModuleType) -> Callable:
    @functools.wraps(original)
    def call(self: Any, inputs: Any) -> Any:
        table = None if scopes.in_stateless_scope() else _table(self)
        if table is None or not isinstance(inputs, tf.Tensor):
            return original(self, inputs)
        numbers = inputs if inputs.dtype in (tf.int32, tf.int64) else tf.cast(inputs, tf.int32)
        numbers = tf.where(numbers < 0, numbers + tf.cast(table.shape[0], numbers.dtype), numbers)
        return tf.cast(table.sparse_read(numbers), self.compute_dtype)

    return call


def _table(layer: Any) -> Any:
    """The variable in which a layer looks up in place; None where it looks up in anything else, as with LoRA."""
    held = getattr(getattr(layer, "_embeddings", None), "_value", None)
    in_place = getattr(held, "looks_up_in_place", False)
    if not in_place or layer.lora_enabled or layer.quantization_mode is not None:
        return None
    return held if layer.embeddings is layer._embeddings else None
