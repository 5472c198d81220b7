"""The part of a gradient's entries that is sent: a constant, or a function of the step."""

from __future__ import annotations

from typing import Callable, Union

import tensorflow as tf

from tf_strategies.errors import OptionsError
from tf_strategies.types import TensorLike, Unchecked

__all__ = ["Ratio", "checked_ratio", "entries", "warmed_up"]

Ratio = Union[float, Callable[[tf.Tensor], TensorLike]]

_STAGES = 4
_FIRST = 0.25  # the ratio in the first stage of a warm-up; each later stage has a quarter of the ratio before


def checked_ratio(ratio: Unchecked) -> Ratio:
    """Returns the ratio if it is a number above 0 and at most 1, or a schedule: a function of the step.

    Raises:
        OptionsError: it is not.
    """
    if callable(ratio):
        return ratio
    if isinstance(ratio, bool) or not isinstance(ratio, (int, float)) or not 0 < ratio <= 1:
        raise OptionsError(
            f"ratio must be a number above 0 and at most 1, or a function of the step that gives one; got {ratio!r}"
        )
    return float(ratio)


def warmed_up(ratio: float, steps: int) -> Ratio:
    """Returns the ratio with a warm-up: in four equal stages of `steps` steps, it is at least 1/4, 1/16, 1/64 and 1/256.

    References:
        Lin et al. 2018, "Deep gradient compression", section 3.3.
    """
    if not steps:
        return ratio

    def at(step: tf.Tensor) -> tf.Tensor:
        stage = tf.cast(step * _STAGES // steps, tf.float32)
        early = tf.maximum(_FIRST ** (stage + 1.0), ratio)
        return tf.where(step < steps, early, ratio)

    return at


def entries(ratio: Ratio, elements: int, step: tf.Tensor) -> Union[int, tf.Tensor]:
    """Returns the number of entries that are sent, at least 1: an int if the ratio is constant, else [] int64."""
    if not callable(ratio):
        return max(1, round(ratio * elements)) if elements else 0
    part = tf.cast(ratio(step), tf.float64) * elements
    most = tf.constant(elements, tf.int64)
    return tf.clip_by_value(
        tf.cast(tf.round(part), tf.int64), tf.minimum(tf.constant(1, tf.int64), most), most
    )
