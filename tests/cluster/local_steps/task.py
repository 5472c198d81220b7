"""The programs of test_local_steps.py, for its workers and for the process that compares."""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple

import numpy as np
import tensorflow as tf

import tf_strategies as tfs

BATCH, EPOCHS = 12, 2
ROWS = 40  # the last batch of an epoch has 4 rows, so that some of 3 workers have none


class Program(NamedTuple):
    """Describes how a model is trained.

    Attributes:
        options: of the local steps.
        optimizer: "sgd", "slow sgd", "momentum" or "adam".
        normalizes: whether the model has batch normalization.
        in_loop: whether a loop with `strategy.run` trains it, instead of `fit`.
        repeats: how often an epoch has each row.
    """

    options: tfs.LocalSGD
    optimizer: str = "adam"
    normalizes: bool = False
    in_loop: bool = False
    repeats: int = 1


PROGRAMS: Dict[str, Program] = {
    "every step": Program(tfs.LocalSGD(sync_every=1), "sgd"),
    "averages": Program(tfs.LocalSGD(sync_every=3), normalizes=True),
    "after a warm-up": Program(tfs.LocalSGD(sync_every=2, warmup_steps=3), "momentum"),
    "outer optimizer": Program(tfs.DiLoCo(sync_every=3)),
    "loop": Program(tfs.LocalSGD(sync_every=1), "sgd", in_loop=True),
    "in 8 bits": Program(tfs.DiLoCo(sync_every=3, quantize=8)),
    "in 4 bits": Program(tfs.DiLoCo(sync_every=3, quantize=4)),
    "fragments": Program(tfs.DiLoCo(sync_every=4, fragments=2), "slow sgd", normalizes=True, repeats=3),
    "overlap": Program(tfs.DiLoCo(sync_every=7, fragments=3, overlap_steps=2), "sgd", repeats=3),
    "overlap in loop": Program(tfs.DiLoCo(sync_every=4, overlap_steps=3), "sgd", in_loop=True, repeats=3),
    "overlap in 8 bits": Program(
        tfs.DiLoCo(sync_every=7, fragments=3, overlap_steps=2, quantize=8), "sgd", repeats=3
    ),
}

ELASTIC: Dict[str, Program] = {
    "fit": Program(tfs.DiLoCo(sync_every=3), "slow sgd", normalizes=True, repeats=3),
    "after a warm-up": Program(tfs.LocalSGD(sync_every=4, warmup_steps=5), "momentum", repeats=3),
    "loop": Program(tfs.LocalSGD(sync_every=3), "sgd", in_loop=True, repeats=3),
}
"""What test_elastic_local_steps.py trains in groups that change."""


def make_rows(repeats: int = 1) -> Tuple[np.ndarray, np.ndarray]:
    x = np.tile(np.random.RandomState(0).randn(ROWS, 8).astype(np.float32), [repeats, 1])
    return x, (np.sin(x).sum(axis=1, keepdims=True) + 1).astype(np.float32)


def make_model(program: Program) -> tf.keras.Model:
    def dense(units: int, seed: int, activation: str) -> tf.keras.layers.Layer:
        kernel = tf.keras.initializers.GlorotUniform(seed=seed)
        return tf.keras.layers.Dense(units, activation=activation, kernel_initializer=kernel)

    middle = [tf.keras.layers.BatchNormalization()] if program.normalizes else []
    layers = [tf.keras.layers.Input([8]), dense(160, 1, "tanh"), *middle, dense(1, 2, "linear")]
    model = tf.keras.Sequential(layers)
    optimizers = {
        "sgd": lambda: tf.keras.optimizers.SGD(0.05),
        "slow sgd": lambda: tf.keras.optimizers.SGD(0.002),
        "momentum": lambda: tf.keras.optimizers.SGD(0.02, momentum=0.9),
        "adam": lambda: tf.keras.optimizers.Adam(0.01),
    }
    model.compile(optimizers[program.optimizer](), "mse", metrics=["mae"])
    return model
