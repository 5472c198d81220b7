"""The model that the checks of this folder train, and its rows."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1

FEATURES, CLASSES = 5, 3


def rows(count: int) -> tuple:
    generator = np.random.default_rng(3)
    return generator.standard_normal((count, FEATURES)).astype("float32"), generator.integers(
        0, CLASSES, count
    )


def make_model(strategy, normalize: bool = False, hidden: int = 8) -> keras.Model:
    with strategy.scope():
        layers = [keras.layers.Input((FEATURES,)), keras.layers.Dense(hidden, activation="relu")]
        layers += [keras.layers.BatchNormalization()] if normalize else []
        model = keras.Sequential([*layers, keras.layers.Dense(CLASSES)])
        model.compile(
            keras.optimizers.Adam(0.01),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    return model
