"""Keras 3 with variables that live on servers: counts are added up there.

Keras 3 adds to a variable by reading and assigning it, so that of two workers that count at once one is lost. Keras 2
leaves it to the variable.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable

import tensorflow as tf

__all__ = ["assign_add", "assign_sub"]


def assign_add(original: Callable, keras: ModuleType) -> Callable:
    """Returns `keras.Variable.assign_add`, which adds where the variable lives."""
    del keras
    return _on_servers(original, "assign_add")


def assign_sub(original: Callable, keras: ModuleType) -> Callable:
    """Returns `keras.Variable.assign_sub`, which subtracts where the variable lives."""
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
