"""Tells whether a model is trained by code that its user wrote, which may do anything with the rows of a batch."""

from __future__ import annotations

import tensorflow as tf

from tf_strategies.keras.inspection import layers_of
from tf_strategies.keras.loaded import classes_of
from tf_strategies.keras.types import Model

__all__ = ["has_only_compiled_losses", "has_own_code"]

_FUNCTIONS = ("activation", "activity_regularizer")
_OPERATIONS = ".tf_op_layer"  # the module of Keras 2 with operations between layers
_COMPUTE_LOSSES = ("train_step", "compute_loss", "_compute_loss")
_ADDED = (
    "_losses",
    "_eager_losses",
)  # what `add_loss` and activity regularizers have added, in Keras 3 and in Keras 2
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


def has_only_compiled_losses(model: Model) -> bool:
    """Returns True if the loss of a step is the one that `compile` was given, and regularizers of weights.

    Call it in a step, after the model has been called.
    """
    layers = [model, *layers_of(model)]
    return (
        len([each for each in tf.nest.flatten(getattr(model, "loss", None)) if each is not None]) == 1
        and not any(_is_own(getattr(type(model), name)) for name in _COMPUTE_LOSSES if hasattr(model, name))
        and not any(getattr(layer, name, None) for layer in layers for name in _ADDED)
    )


def _is_own_class(layer: object) -> bool:
    module = type(layer).__module__
    return (
        isinstance(layer, classes_of("layers", "Lambda"))
        or _is_elsewhere(module)
        or module.endswith(_OPERATIONS)
    )


def _is_own(function: object) -> bool:
    """Returns True for a function that is no part of Keras."""
    return _is_elsewhere(getattr(function, "__module__", None) or type(function).__module__)


def _is_elsewhere(module: str) -> bool:
    return module.partition(".")[0] not in _KNOWN
