"""Keras 3 with variables that live on servers: counts are added up there.

Keras 3 adds to a variable by reading and assigning it, so that of two workers that count at once one is lost. Keras 2
leaves it to the variable.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable

import tensorflow as tf

__all__ = ["install"]


def install(keras: ModuleType) -> None:
    """Wraps `assign_add` and `assign_sub` of `keras.Variable`."""
    variable = keras.Variable
    for name in ("assign_add", "assign_sub"):
        setattr(variable, name, _on_servers(getattr(variable, name), name))


def _on_servers(original: Callable, name: str) -> Callable:
    @functools.wraps(original)
    def change(self: Any, value: Any) -> Any:
        held = getattr(self, "_value", None)
        if not getattr(held, "lives_on_servers", False):
            return original(self, value)
        getattr(held, name)(tf.cast(value, held.dtype))
        return self

    return change
