"""A step that is held between two layers, and processes that are."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from tests.support.processes import wait_until

__all__ = ["Between", "after", "stop"]

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1


class Between(keras.layers.Layer):
    """Passes on what comes, after Python was called: one function on the way forward, another on the way back."""

    def __init__(self, forward: Callable[[], None], backward: Callable[[], None]) -> None:
        super().__init__()
        self._functions = forward, backward

    def call(self, inputs: Any) -> Any:
        forward, backward = self._functions

        @tf.custom_gradient
        def passed(values: tf.Tensor) -> tuple:
            return after(forward, values), lambda upstream: after(backward, upstream)

        return passed(inputs)


def after(function: Callable[[], None], values: tf.Tensor) -> tf.Tensor:
    """The values, once the function was called with them there."""

    def called(array: np.ndarray) -> np.ndarray:
        function()
        return array

    passed = tf.numpy_function(called, [values], values.dtype)
    passed.set_shape(values.shape)
    return passed


def stop(pid: int) -> None:
    """Stops a process; returns when it has."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: ") T " in Path(f"/proc/{pid}/stat").read_text(), 5, "the stop")
