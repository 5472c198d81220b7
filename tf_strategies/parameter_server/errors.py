"""Defines the error for a lost parameter server, and explains those of TensorFlow for what was made before the strategy."""

from __future__ import annotations

import contextlib
from typing import Iterator

import tensorflow as tf

__all__ = ["ServerLostError", "explaining_former_devices"]

_FORMER_DEVICE = "/job:localhost/"
_UNKNOWN = "unknown device", "does not match any device"


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
            "the data or the model uses a variable, a lookup table or a layer with one (such as StringLookup or "
            "TextVectorization) that was made before the strategy. TensorFlow no longer finds it, since the strategy has "
            "connected it to the servers. Make the strategy in the first lines of the script, before anything else of TensorFlow"
        ) from error
