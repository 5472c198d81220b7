"""What tests of parameter servers train, and what they look at."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import tensorflow as tf

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1

STEPS = 50
WORDS, WIDTH, LENGTH, CLASSES = 300, 8, 6, 5
LARGE_BYTES = 4 << 10
Partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner


class Recorder(keras.callbacks.Callback):
    """Keeps when each step of this worker ended, in monotonic seconds; before each it may sleep, and before all call `begin`."""

    def __init__(self, sleep: float = 0.0, begin: Any = None) -> None:
        super().__init__()
        self.ends: list = []
        self._sleep = sleep
        self._begin = begin

    def on_train_begin(self, logs: Any = None) -> None:
        if self._begin is not None:
            self._begin()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._sleep:
            time.sleep(self._sleep)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ends.append(time.monotonic())


def numbers(count: int) -> tuple:
    """Rows of numbers with labels that can be learnt."""
    generator = np.random.default_rng(3)
    x = generator.standard_normal((count, 8)).astype("float32")
    return x, (x @ generator.standard_normal((8, CLASSES))).argmax(axis=1)


def words(count: int) -> tuple:
    """Rows of word numbers, some of them often, with labels that can be learnt."""
    generator = np.random.default_rng(4)
    x = (WORDS * generator.random((count, LENGTH)) ** 3).astype("int32")
    return x, generator.standard_normal((WORDS, CLASSES))[x].sum(axis=1).argmax(axis=1)


def own_data() -> tf.data.Options:
    """Of data that each worker has to itself."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options


def dense_model(**arguments: Any) -> keras.Model:
    return keras.Sequential(
        [
            keras.layers.Input((8,)),
            keras.layers.Dense(16, activation="tanh"),
            keras.layers.Dense(CLASSES, **arguments),
        ]
    )


def word_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.layers.Input((LENGTH,), dtype="int32"),
            keras.layers.Embedding(WORDS, WIDTH),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(CLASSES),
        ]
    )


def scalar_loss(y: Any, logits: Any) -> tf.Tensor:
    """Returns one number for a batch, the mean over its rows."""
    labels = tf.cast(tf.reshape(y, [-1]), tf.int64)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def compiled(model: keras.Model, optimizer: Any, loss: Any = None) -> keras.Model:
    loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def servers_of(variable: Any) -> list:
    """The devices that hold the parts of a weight."""
    held = variable if hasattr(variable, "parts") else variable.value
    return [part.device for part in held.parts]
