"""Embeddings of Keras 3 look rows up where they are: on servers, so that no others travel, and here without a copy of the table.

Keras 3 looks up in a tensor of the whole; Keras 2 leaves it to `tf.nn.embedding_lookup`, and that to the variable.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable

import tensorflow as tf

__all__ = ["install"]


def install(keras: ModuleType) -> None:
    """Wraps the lookup of `keras.layers.Embedding`."""
    keras.layers.Embedding.call = _of_rows(keras.layers.Embedding.call)


def _of_rows(original: Callable) -> Callable:
    @functools.wraps(original)
    def call(self: Any, inputs: Any) -> Any:
        table = getattr(getattr(self, "_embeddings", None), "_value", None)
        in_place = getattr(table, "looks_up_in_place", False)
        plain = not getattr(self, "lora_enabled", False) and getattr(self, "quantization_mode", None) is None
        if not in_place or not plain or not isinstance(inputs, tf.Tensor):
            return original(self, inputs)
        numbers = inputs if inputs.dtype in (tf.int32, tf.int64) else tf.cast(inputs, tf.int32)
        numbers = tf.where(numbers < 0, numbers + tf.cast(table.shape[0], numbers.dtype), numbers)
        return tf.cast(table.sparse_read(numbers), self.compute_dtype)

    return call
