"""Tells whether a model is trained by code that its user wrote, which may do anything with the rows of a batch."""

from __future__ import annotations

import tensorflow as tf

from tf_strategies.keras.inspection import layers_of
from tf_strategies.keras.loaded import classes_of
from tf_strategies.keras.types import Model

__all__ = ["has_own_code"]

_KNOWN = ("keras", "tf_keras", "tensorflow", "tf_strategies")


def has_own_code(model: Model) -> bool:
    """Returns True if the class of a model, of one of its layers, or one of its losses is no part of Keras.

    A `Lambda` layer counts as the user's.
    """
    layers = [model, *layers_of(model)]
    losses = [each for each in tf.nest.flatten(getattr(model, "loss", None)) if callable(each)]
    return any(map(_is_own_class, layers)) or any(map(_is_own, losses))


def _is_own_class(layer: object) -> bool:
    return isinstance(layer, classes_of("layers", "Lambda")) or _is_elsewhere(type(layer).__module__)


def _is_own(loss: object) -> bool:
    return _is_elsewhere(getattr(loss, "__module__", None) or type(loss).__module__)


def _is_elsewhere(module: str) -> bool:
    return module.partition(".")[0] not in _KNOWN
