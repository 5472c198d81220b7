"""Texts of any length from C functions."""

from __future__ import annotations

import ctypes
from typing import Any, Callable

_USUAL_BYTES = 4096


def read(call: Callable[..., int], *arguments: Any, capacity: int = _USUAL_BYTES) -> bytes | None:
    """Returns what a C function that yields text says; None when that of which it would is gone.

    Args:
        call: takes the arguments, a buffer and its size; returns the length of the text, negative for none.
        arguments: the others.
        capacity: how long the text is expected to be, in bytes; a longer one is asked for again.
    """
    while True:
        buffer = ctypes.create_string_buffer(capacity)
        size = call(*arguments, buffer, ctypes.c_int64(capacity))
        if size <= capacity:
            return None if size < 0 else buffer.raw[:size]
        capacity = size
