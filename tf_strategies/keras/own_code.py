"""Tells whether a model is trained by code that its user wrote, which may do anything with the rows of a batch."""

from __future__ import annotations

import tensorflow as tf

from tf_strategies.keras.inspection import layers_of
from tf_strategies.keras.loaded import classes_of
from tf_strategies.keras.types import Model

__all__ = ["has_own_code"]

_FUNCTIONS = ("activation", "activity_regularizer")
_OPERATIONS = ".tf_op_layer"  # the module of Keras 2 with operations between layers
_KNOWN = ("keras", "tf_keras", "tensorflow", "tf_strategies")


def has_own_code(model: Model) -> bool:
    """Returns True if the class of a model or of a layer, an activation, regularizer or loss is no part of Keras.

    `Lambda` layers and operations between layers count as the user's.
    """
    layers = [model, *layers_of(model)]
    used = [getattr(layer, name, None) for layer in layers for name in _FUNCTIONS]
    used += tf.nest.flatten(getattr(model, "loss", None))
    return (
        any(map(_is_own_class, layers))
        or any(_is_own(each) for each in used if callable(each))
        or any(
            not isinstance(each, classes_of("layers", "Layer")) for each in getattr(model, "operations", ())
        )
    )


def _is_own_class(layer: object) -> bool:
    module = type(layer).__module__
    return (
        isinstance(layer, classes_of("layers", "Lambda"))
        or _is_elsewhere(module)
        or module.endswith(_OPERATIONS)
    )


def _is_own(function: object) -> bool:
    return _is_elsewhere(getattr(function, "__module__", None) or type(function).__module__)


def _is_elsewhere(module: str) -> bool:
    return module.partition(".")[0] not in _KNOWN
