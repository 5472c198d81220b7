"""Reads texts of any length from C functions."""

from __future__ import annotations

import ctypes
from typing import Any, Callable

_USUAL_BYTES = 4096


def read(call: Callable[..., int], *arguments: Any, capacity: int = _USUAL_BYTES) -> bytes | None:
    """Returns the text of a C function, or None if the object that it describes no longer exists.

    Args:
        call: the C function. It takes the arguments, a buffer and its size, and returns the length of the
            text, or a negative number.
        arguments: the arguments before the buffer.
        capacity: the expected length of the text in bytes. For a longer text the function is called again.
    """
    while True:
        buffer = ctypes.create_string_buffer(capacity)
        size = call(*arguments, buffer, ctypes.c_int64(capacity))
        if size <= capacity:
            return None if size < 0 else buffer.raw[:size]
        capacity = size
