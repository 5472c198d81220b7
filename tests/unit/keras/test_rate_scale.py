"""Optimizers update with a multiple of their learning rates. Other code reads and sets the rate that was chosen."""

from __future__ import annotations

from typing import Any, Callable, Dict

import numpy as np
import pytest
import tensorflow as tf

import tf_strategies as tfs
from tf_strategies.keras import bridge
from tf_strategies.keras.current import KERAS3
from tf_strategies.keras.rate_scale import scaled_rates

pytestmark = pytest.mark.keras
_SCALE = 0.75
_OPTIMIZERS: Dict[str, Callable[[Any], Any]] = {
    "momentum": lambda rate: tf.keras.optimizers.SGD(rate, momentum=0.9),
    "decayed": lambda rate: tf.keras.optimizers.AdamW(rate, weight_decay=0.1),
    "lars": lambda rate: tfs.optimizers.LARS(rate),
}
if KERAS3:
    _OPTIMIZERS["accumulated"] = lambda rate: tf.keras.optimizers.SGD(rate, gradient_accumulation_steps=2)
    _OPTIMIZERS["loss scale"] = lambda rate: tf.keras.optimizers.LossScaleOptimizer(
        tf.keras.optimizers.Adam(rate), initial_scale=4.0
    )
else:
    _OPTIMIZERS["legacy"] = lambda rate: tf.keras.optimizers.legacy.SGD(rate, momentum=0.9)
    _OPTIMIZERS["legacy, decayed"] = lambda rate: tf.keras.optimizers.legacy.Adam(rate, decay=0.1)
    _OPTIMIZERS["legacy, with its own"] = lambda rate: tf.keras.optimizers.legacy.Nadam(rate)
_RATES: Dict[str, Callable[[float], Any]] = {
    "number": lambda scale: 0.1 * scale,
    "schedule": lambda scale: tf.keras.optimizers.schedules.ExponentialDecay(0.1 * scale, 2, 0.5),
}
_NO_SCHEDULES = "legacy, with its own"


def _trained(optimizer: Any, scale: float) -> np.ndarray:
    """Returns a variable after two steps in a function."""
    variable = tf.Variable([1.0, 2.0, 3.0])
    if KERAS3:
        variable = tf.keras.Variable(variable)
    with scaled_rates(scale):

        @tf.function
        def step() -> None:
            gradient = tf.convert_to_tensor(variable) * 4.0
            optimizer.apply_gradients([(gradient, variable)])

        for _ in range(4):
            step()
    return np.asarray(variable)


@pytest.mark.parametrize(
    ("kind", "rate"),
    [(kind, rate) for kind in _OPTIMIZERS for rate in _RATES if (kind, rate) != (_NO_SCHEDULES, "schedule")],
)
def test_a_step_takes_a_multiple_of_the_rate(kind: str, rate: str) -> None:
    bridge.install()
    make = _OPTIMIZERS[kind]
    scaled = _trained(make(_RATES[rate](1.0)), _SCALE)
    np.testing.assert_allclose(scaled, _trained(make(_RATES[rate](_SCALE)), 1.0), rtol=1e-6)
    assert np.abs(scaled - _trained(make(_RATES[rate](1.0)), 1.0)).max() > 1e-3


@pytest.mark.parametrize("kind", ["momentum", *(["legacy"] if not KERAS3 else [])])
def test_a_step_can_read_and_set_the_rate(kind: str) -> None:
    bridge.install()
    optimizer = _OPTIMIZERS[kind](0.5)
    variable = tf.keras.Variable(1.0) if KERAS3 else tf.Variable(1.0)
    with scaled_rates(_SCALE):
        assert float(optimizer.learning_rate) == 0.5
        optimizer.learning_rate.assign(0.25)
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
        np.testing.assert_allclose(float(np.asarray(variable)), 1 - 0.25 * _SCALE)
        optimizer.learning_rate = optimizer.learning_rate * 0.5
    assert float(optimizer.learning_rate) == 0.125
