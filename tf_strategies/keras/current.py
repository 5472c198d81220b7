"""Finds the Keras that `tf.keras` stands for: Keras 3, tf_keras or Keras 2.15."""

from __future__ import annotations

import importlib
from types import ModuleType

import tensorflow as tf

__all__ = ["KERAS", "KERAS3"]


def _keras() -> ModuleType:
    """Returns the package; `tf.keras` has no version, and not all of its names."""
    return importlib.import_module(tf.keras.optimizers.Optimizer.__module__.partition(".")[0])


KERAS = _keras()
KERAS3 = KERAS.__version__.startswith("3.")
