"""Makes embeddings look up rows in place.

Only these rows are sent by servers, in the type in which the layer computes, and a local lookup makes no copy of the
table.

Keras 3 itself reads the whole table. Keras 2 calls `tf.nn.embedding_lookup`, which calls the variable, and casts the
rows after they have arrived.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Callable, Optional

import tensorflow as tf

from tf_strategies.keras.types import Layer
from tf_strategies.types import TensorLike

__all__ = ["call", "call_keras2"]


def call(original: Callable[..., tf.Tensor], keras: ModuleType) -> Callable[..., tf.Tensor]:
    """Returns the `call` method of an embedding that looks up rows in place."""
    scopes = importlib.import_module(f"{keras.__name__}.src.backend.common.stateless_scope")

    @functools.wraps(original)
    def call_of_rows(self: Layer, inputs: TensorLike) -> tf.Tensor:
        table = None if scopes.in_stateless_scope() else _table(self)
        if table is None or not isinstance(inputs, tf.Tensor):
            return original(self, inputs)
        numbers = inputs if inputs.dtype in (tf.int32, tf.int64) else tf.cast(inputs, tf.int32)
        numbers = tf.where(numbers < 0, numbers + tf.cast(table.shape[0], numbers.dtype), numbers)
        return _rows(table, numbers, self.compute_dtype)

    return call_of_rows


def call_keras2(original: Callable[..., tf.Tensor], keras: ModuleType) -> Callable[..., tf.Tensor]:
    """Returns the `call` method of an embedding of Keras 2, whose rows servers cast before they send them."""
    del keras

    @functools.wraps(original)
    def call_of_rows(self: Layer, inputs: TensorLike) -> tf.Tensor:
        table = self.embeddings
        if not getattr(table, "casts_on_servers", False) or not _looks_up(self, inputs):
            return original(self, inputs)
        numbers = inputs if inputs.dtype in (tf.int32, tf.int64) else tf.cast(inputs, tf.int32)
        return _rows(table, numbers, self.compute_dtype)

    return call_of_rows


def _rows(table: tf.Variable, numbers: tf.Tensor, dtype: str) -> tf.Tensor:
    """Returns rows of a table as `dtype`."""
    if getattr(table, "casts_on_servers", False):
        return table.sparse_read_as(numbers, tf.as_dtype(dtype))
    return tf.cast(table.sparse_read(numbers), dtype)


def _looks_up(layer: Layer, inputs: TensorLike) -> bool:
    """Returns True if an embedding of Keras 2 looks up the rows of a tensor."""
    return isinstance(inputs, tf.Tensor) and not (layer.sparse or layer._use_one_hot_matmul)


def _table(layer: Layer) -> Optional[tf.Variable]:
    """Returns the variable in which a layer looks up rows, or None if the table is not a variable, as with LoRA."""
    held = getattr(getattr(layer, "_embeddings", None), "_value", None)
    in_place = getattr(held, "looks_up_in_place", False)
    if not in_place or layer.lora_enabled or getattr(layer, "quantization_mode", None) is not None:
        return None
    return held if layer.embeddings is layer._embeddings else None
