"""The models of benchmarks.fit and benchmarks.timeline, and their data: a few batches in memory, over and over."""

from __future__ import annotations

from typing import Callable

import numpy as np
import tensorflow as tf

INPUTS, WIDTHS, CLASSES = 784, (3072, 3072, 1024), 10
IMAGE_CLASSES = 1000
WORDS, FEATURES, LENGTH = 200_000, 64, 20
_RATE = 0.01

keras = tf.keras


def build_mlp(_: int) -> keras.Model:
    """15.0 million weights in eight variables."""
    hidden = [keras.layers.Dense(width, "relu") for width in WIDTHS]
    return keras.Sequential([keras.layers.InputLayer((INPUTS,)), *hidden, keras.layers.Dense(CLASSES)])


def build_resnet50(image_size: int) -> keras.Model:
    """25.6 million weights in 161 variables."""
    shape = (image_size, image_size, 3)
    return keras.applications.ResNet50(
        weights=None, input_shape=shape, classes=IMAGE_CLASSES, classifier_activation=None
    )


def build_embedding(_: int) -> keras.Model:
    """A table of 12.8 million weights, whose gradient is sparse, the mean of its rows, and a dense head."""
    layers = keras.layers
    return keras.Sequential(
        [
            layers.InputLayer((LENGTH,), dtype="int32"),
            layers.Embedding(WORDS, FEATURES),
            layers.GlobalAveragePooling1D(),
            layers.Dense(64, "relu"),
            layers.Dense(CLASSES),
        ]
    )


MODELS: dict[str, Callable[[int], keras.Model]] = {
    "mlp": build_mlp,
    "resnet50": build_resnet50,
    "embedding": build_embedding,
}


def make_optimizer(name: str) -> object:
    """Plain SGD. That of Keras 2 adds to the whole table when few rows have a gradient; its older one, to those rows."""
    if name == "embedding" and not hasattr(keras, "ops"):
        return keras.optimizers.legacy.SGD(_RATE)
    return keras.optimizers.SGD(_RATE)


def compile_model(model: keras.Model, optimizer: object) -> None:
    """The same for all systems; not for XLA, which compiles no collective."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=False)


def endless_batches(name: str, batch: int, image_size: int, seed: int) -> tf.data.Dataset:
    """Batches of a worker, drawn once: what reads them costs next to nothing."""
    rng = np.random.default_rng(seed)
    several, classes = 8, CLASSES
    if name == "mlp":
        inputs = rng.standard_normal((several, batch, INPUTS), np.float32)
    elif name == "embedding":
        inputs = rng.integers(0, WORDS, (several, batch, LENGTH), np.int32)
    else:
        several, classes = 2, IMAGE_CLASSES
        inputs = rng.standard_normal((several, batch, image_size, image_size, 3), np.float32)
    labels = rng.integers(0, classes, (several, batch), np.int32)
    options = tf.data.Options()
    options.autotune.enabled = False
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    data = tf.data.Dataset.from_tensor_slices((inputs, labels))
    return data.cache().repeat().prefetch(2).with_options(options)
