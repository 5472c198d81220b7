"""Small models on the Keras in use, and the same model trained by one process as the oracle."""

from __future__ import annotations

import importlib
import os
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from tests.support.replicas import require_equal_everywhere

keras = importlib.import_module("tf_keras" if os.environ.get("TF_USE_LEGACY_KERAS") == "1" else "keras")
KERAS3 = keras.__version__.startswith("3.")
FEATURES, CLASSES = 4, 3


def rows(count: int, seed: int = 3) -> tuple:
    """x [count, FEATURES] and y [count], the same on all workers; means and spreads differ by column."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((count, FEATURES)) * np.arange(1, FEATURES + 1) + np.arange(FEATURES)
    return x.astype("float32"), generator.integers(0, CLASSES, count)


def make_model(scope: Any, layers: Callable[[], list], optimizer: Any = None, **compiled: Any) -> Any:
    """A Sequential model made in `scope`, whose weights depend on its shape alone."""
    keras.utils.set_random_seed(11)
    with scope:
        model = keras.Sequential([keras.layers.Input((FEATURES,)), *layers(), keras.layers.Dense(CLASSES)])
        model.compile(
            keras.optimizers.SGD(0.1, momentum=0.9) if optimizer is None else optimizer(),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            **compiled,
        )
    return model


def alone() -> Any:
    """The scope of one process: what the joint batch is compared with."""
    return tf.distribute.OneDeviceStrategy("CPU:0").scope()


def require_as_alone(strategy: Any, layers: Callable[[], list], optimizer: Any = None, **modes: Any) -> Any:
    """Trains with all replicas, and on the chief in one process with the joint batch: the same weights, the same bits."""
    fit = {"epochs": 2, "batch_size": 12, "shuffle": False, "verbose": 0, **modes.pop("fit", {})}
    x, y = rows(modes.pop("count", 36))
    model = make_model(strategy.scope(), layers, optimizer, **modes)
    model.fit(x, y, **fit)
    require_equal_everywhere(strategy, [*model.weights, *variables_of(model.optimizer)])
    if strategy.rank == 0:
        oracle = make_model(alone(), layers, optimizer, **modes)
        oracle.fit(x, y, **fit)
        for mine, expected in zip(model.get_weights(), oracle.get_weights()):
            np.testing.assert_allclose(mine, expected, rtol=0, atol=1e-5)
    return model


def variables_of(optimizer: Any) -> list:
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def calls(strategy: Any) -> int:
    return strategy.communication_stats().calls
