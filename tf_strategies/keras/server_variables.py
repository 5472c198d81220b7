"""Makes Keras 3 add to variables on the servers that hold them.

Keras 3 adds to a variable by reading and assigning it. If two workers count at the same time, one count is
lost. Keras 2 calls the variable's own method.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable

import tensorflow as tf

__all__ = ["assign_add", "assign_sub"]


def assign_add(original: Callable, keras: ModuleType) -> Callable:
    """Returns `keras.Variable.assign_add`, which adds on the server of the variable."""
    del keras
    return _on_servers(original, "assign_add")


def assign_sub(original: Callable, keras: ModuleType) -> Callable:
    """Returns `keras.Variable.assign_sub`, which subtracts on the server of the variable."""
    del keras
    return _on_servers(original, "assign_sub")


def _on_servers(original: Callable, name: str) -> Callable:
    @functools.wraps(original)
    def change(self: Any, value: Any) -> Any:
        held = getattr(self, "_value", None)
        if not getattr(held, "lives_on_servers", False):
            return original(self, value)
        getattr(held, name)(tf.cast(value, held.dtype))
        return self

    return change
