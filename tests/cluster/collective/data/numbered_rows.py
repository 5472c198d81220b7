"""Numbered rows, a linear model that counts them, and its training in NumPy.

Row i has the target i / 10, and metrics add up targets and rows, so that a row lost or seen twice shows. The oracle trains the
same model on the union of what the workers should have in each step.
"""

from __future__ import annotations

from typing import Any, List

import numpy as np
import tensorflow as tf

from tests.cluster.collective.data_kinds import keras

FEATURES, RATE = 3, 0.1


class Rows(keras.metrics.Metric):
    """The number of rows seen."""

    def __init__(self, name: str = "rows") -> None:
        super().__init__(name=name)
        self.total = self.add_weight(name="total", shape=(), initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.total.assign_add(tf.cast(tf.shape(y_true)[0], tf.float32))

    def result(self) -> Any:
        return self.total + 0.0


class Targets(Rows):
    """The sum of the targets seen."""

    def __init__(self) -> None:
        super().__init__(name="targets")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.total.assign_add(tf.reduce_sum(tf.cast(y_true, tf.float32)))


def rows(count: int, first: int = 0) -> tuple:
    """x [count, FEATURES] and y [count, 1] of the rows from `first` on."""
    x = np.random.default_rng(5).standard_normal((200, FEATURES)).astype("float32")[first : first + count]
    return x, (np.arange(first, first + count, dtype="float32") / 10)[:, None]


def linear(strategy, **compiling: Any) -> Any:
    with strategy.scope():
        model = keras.Sequential(
            [keras.layers.Input((FEATURES,)), keras.layers.Dense(1, kernel_initializer="zeros")]
        )
        model.compile(keras.optimizers.SGD(RATE), "mse", metrics=[Rows(), Targets()], **compiling)
    return model


def joint_training(steps: List[tuple]) -> tuple:
    """The weights after SGD on the mean squared error of each (x, y)."""
    kernel, bias = np.zeros((FEATURES, 1)), np.zeros(1)
    for x, y in steps:
        error = 2 * (x @ kernel + bias - y) / len(x)
        kernel, bias = kernel - RATE * x.T @ error, bias - RATE * error.sum(axis=0)
    return kernel, bias


def batches(x: np.ndarray, y: np.ndarray, size: int) -> List[tuple]:
    return [(x[at : at + size], y[at : at + size]) for at in range(0, len(x), size)]


def union(parts: List[List[tuple]]) -> List[tuple]:
    """Step by step, the rows of all that still have a batch."""
    steps = range(max(len(part) for part in parts))
    present = [[part[step] for part in parts if step < len(part)] for step in steps]
    return [tuple(np.concatenate(columns) for columns in zip(*step)) for step in present]


def require_epochs(model: Any, history: Any, steps: List[tuple], epochs: int = 1) -> None:
    """Each epoch saw each row once, and the weights are those of the joint steps."""
    logs = history.history
    expected = sum(len(x) for x, _ in steps), sum(float(y.sum()) for _, y in steps)
    assert logs["rows"] == [expected[0]] * epochs, (logs["rows"], expected)
    np.testing.assert_allclose(logs["targets"], [expected[1]] * epochs, rtol=1e-5)
    for mine, theirs in zip(model.get_weights(), joint_training(steps * epochs)):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)
    if epochs == 1:
        kernel, bias, total = np.zeros((FEATURES, 1)), np.zeros(1), 0.0
        for number, (x, y) in enumerate(steps):
            kernel, bias = joint_training(steps[:number])
            total += float(((x @ kernel + bias - y) ** 2).sum())
        np.testing.assert_allclose(logs["loss"][0], total / expected[0], rtol=1e-4)
