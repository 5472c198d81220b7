"""Makes Keras 3 add to variables on the servers that hold them.

Keras 3 adds to a variable by reading and assigning it. If two workers count at the same time, one count is
lost. Keras 2 calls the variable's own method.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Callable

import tensorflow as tf

from tf_strategies.keras.types import Keras3Variable, Variable
from tf_strategies.types import TensorLike

__all__ = ["assign_add", "assign_sub"]


def assign_add(original: Callable[..., Variable], keras: ModuleType) -> Callable[..., Variable]:
    """Returns `keras.Variable.assign_add`, which adds on the server of the variable."""
    del keras
    return _on_servers(original, "assign_add")


def assign_sub(original: Callable[..., Variable], keras: ModuleType) -> Callable[..., Variable]:
    """Returns `keras.Variable.assign_sub`, which subtracts on the server of the variable."""
    del keras
    return _on_servers(original, "assign_sub")


def _on_servers(original: Callable[..., Variable], name: str) -> Callable[..., Variable]:
    @functools.wraps(original)
    def change(self: Keras3Variable, value: TensorLike) -> Variable:
        held = getattr(self, "_value", None)
        if not getattr(held, "lives_on_servers", False):
            return original(self, value)
        getattr(held, name)(tf.cast(value, held.dtype))
        return self

    return change
