"""Makes the rows and the model of test_elastic.py, for its workers and for the process that compares."""

from __future__ import annotations

from typing import Callable, List, Tuple

import numpy as np
import tensorflow as tf

BATCH, EPOCHS = 24, 3
ROWS = 200
BATCHES = -(-ROWS // BATCH)  # of an epoch
STEPS = 7  # of an epoch of data that repeat
FIT = {"batch_size": BATCH, "shuffle": False, "epochs": EPOCHS, "verbose": 0}  # arguments of `fit`


def make_rows() -> Tuple[np.ndarray, np.ndarray]:
    x = np.random.RandomState(0).randn(ROWS, 8).astype(np.float32)
    return x, (x.sum(axis=1, keepdims=True) + 1).astype(np.float32)


ON_TRACE: List[Callable[[], None]] = []


def label(labels: tf.Tensor, predictions: tf.Tensor) -> tf.Tensor:
    """A metric that is the mean label: it tells whether an epoch has counted each row once. Calls `ON_TRACE`."""
    del predictions
    for call in ON_TRACE:
        call()
    return labels


def squared_error(predictions: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """The loss of a part of a batch: the parts add up to that of the whole."""
    return tf.reduce_sum((predictions - labels) ** 2) / BATCH


def make_schedule() -> tf.keras.callbacks.Callback:
    """Changes the learning rate of each epoch by that of the epoch before."""
    return tf.keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)


def make_model(wider: bool = False, normalized: bool = False) -> tf.keras.Model:
    """Returns a model. If it is normalized, it has statistics, which its replicas write; they are those of the joint batch."""
    layers = [
        tf.keras.layers.Input([8]),
        tf.keras.layers.Dense(
            17 if wider else 16,
            activation="tanh",
            kernel_initializer=tf.keras.initializers.GlorotUniform(seed=1),
        ),
        *([tf.keras.layers.BatchNormalization(synchronized=True)] if normalized else []),
        tf.keras.layers.Dense(1, kernel_initializer=tf.keras.initializers.GlorotUniform(seed=2)),
    ]
    model = tf.keras.Sequential(layers)
    model.compile(tf.keras.optimizers.Adam(0.01), "mse", metrics=[label])
    return model
