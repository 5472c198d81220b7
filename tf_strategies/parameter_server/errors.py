"""Defines the error for a lost parameter server, and explains those of TensorFlow for what was made before the strategy."""

from __future__ import annotations

import contextlib
from typing import Iterator

import tensorflow as tf

__all__ = ["ServerLostError", "explaining_former_devices"]

_FORMER_DEVICE = "/job:localhost/"
_UNKNOWN = "unknown device", "does not match any device", "explicitly assigned to"


class ServerLostError(tf.errors.UnavailableError):
    """Reports that a parameter server no longer answers, and that its variables are lost.

    The message names the server, its address and the remedy.
    """

    def __init__(self, message: str) -> None:
        super().__init__(None, None, message)


@contextlib.contextmanager
def explaining_former_devices() -> Iterator[None]:
    """Opens a context that explains the error of an operation whose resource was made before the strategy.

    TensorFlow gives devices other names when it connects to the servers.
    """
    try:
        yield
    except tf.errors.OpError as error:
        if _FORMER_DEVICE not in error.message or not any(text in error.message for text in _UNKNOWN):
            raise
        raise RuntimeError(
            "the data or the model uses something that was made before the strategy: a variable, a lookup table, a layer with "
            "one (such as StringLookup or TextVectorization), or a Python function of a dataset (from_generator, py_function, "
            "numpy_function). TensorFlow no longer finds it, because the strategy has connected TensorFlow to the servers. Make "
            "the strategy in the first lines of the script, before you use anything else of TensorFlow"
        ) from error
