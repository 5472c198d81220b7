"""Metrics whose state is no sum are warned of, and no others; two replicas of one process."""

from __future__ import annotations

import logging
import re
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402

pytestmark = pytest.mark.keras
keras = tf.keras
WARNING = "not the old one plus something"
ROWS, BATCH, CLASSES = 21, 8, 3
OF_CLASSES = [
    "AUC", "BinaryAccuracy", "BinaryCrossentropy", "BinaryIoU", "CategoricalAccuracy", "CategoricalCrossentropy",
    "CategoricalHinge", "ConcordanceCorrelation", "CosineSimilarity", "F1Score", "FBetaScore", "FalseNegatives",
    "FalsePositives", "Hinge", "KLDivergence", "LogCoshError", "MeanAbsoluteError", "MeanAbsolutePercentageError",
    "MeanSquaredError", "MeanSquaredLogarithmicError", "PearsonCorrelation", "Poisson", "Precision", "R2Score", "Recall",
    "RootMeanSquaredError", "SquaredHinge", "TopKCategoricalAccuracy", "TrueNegatives", "TruePositives",
]  # fmt: skip
WITH_ARGUMENTS = {
    "OneHotMeanIoU": {"num_classes": CLASSES},
    "PrecisionAtRecall": {"recall": 0.5},
    "RecallAtPrecision": {"precision": 0.5},
    "SensitivityAtSpecificity": {"specificity": 0.5},
    "SpecificityAtSensitivity": {"sensitivity": 0.5},
}


class Largest(keras.metrics.Metric):
    """Keeps the largest prediction, in a variable that replicas add up, or in one of which they take the mean."""

    def __init__(self, *, of_all: bool, name: str = "largest") -> None:
        super().__init__(name=name)
        self.of_all = of_all
        if not of_all:
            self.largest = self.add_weight(name=f"{name}_largest", initializer="zeros")
        elif hasattr(keras.metrics.Metric, "add_variable") and "aggregation" in _names_of_add_variable():
            self.largest = self.add_variable((), "zeros", aggregation="mean", name="largest")
        else:
            mean = tf.VariableAggregation.MEAN
            self.largest = self.add_weight(name="largest", initializer="zeros", aggregation=mean)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        found = tfs.joint_rows(y_pred) if self.of_all else y_pred
        self.largest.assign(tf.maximum(self.largest, tf.reduce_max(found)))

    def result(self) -> Any:
        return tf.convert_to_tensor(self.largest)

    def reset_state(self) -> None:
        self.largest.assign(0.0)


def _names_of_add_variable() -> tuple:
    return keras.metrics.Metric.add_variable.__code__.co_varnames


def logs_of(strategy: Any, metrics: list) -> dict:
    with strategy.scope():
        keras.utils.set_random_seed(1)
        model = keras.Sequential(
            [keras.layers.Input((4,)), keras.layers.Dense(CLASSES, activation="softmax")]
        )
        model.compile("sgd", "mse", metrics=metrics)
    x = np.random.default_rng(0).standard_normal((ROWS, 4)).astype("float32")
    y = np.eye(CLASSES, dtype="float32")[np.arange(ROWS) % CLASSES]
    return dict(model.fit(x, y, batch_size=BATCH, verbose=0, shuffle=False).history)


def test_metrics_of_keras_are_not_warned_of(strategy, caplog) -> None:
    with strategy.scope():
        metrics = [getattr(keras.metrics, name)() for name in OF_CLASSES if hasattr(keras.metrics, name)]
        metrics += [getattr(keras.metrics, name)(**given) for name, given in WITH_ARGUMENTS.items()]
        wrong = Largest(of_all=False, name="wrong")
    assert len(metrics) > 25
    values = tf.eye(CLASSES), tf.ones([CLASSES, CLASSES]) / CLASSES

    def trace(*traced: Any) -> None:
        def update() -> None:
            for metric in traced:
                metric.update_state(*values)

        strategy.run(update)  # makes the missing variables
        tf.function(lambda: strategy.run(update)).get_concrete_function()

    with caplog.at_level(logging.WARNING):
        trace(*metrics)
        assert WARNING not in caplog.text
        trace(wrong)
        assert WARNING in caplog.text


def test_the_largest_value_is_warned_of_and_that_of_all_rows_is_right(strategy, caplog) -> None:
    with strategy.scope():
        right, wrong = Largest(of_all=True), Largest(of_all=False)
    expected = logs_of(tf.distribute.get_strategy(), [Largest(of_all=False)])["largest"]
    with caplog.at_level(logging.WARNING):
        assert logs_of(strategy, [right])["largest"] == pytest.approx(expected, rel=1e-5)
        assert WARNING not in caplog.text
        assert logs_of(strategy, [wrong])["largest"][0] > 1.5 * expected[0]
    assert re.search("gives its variable '.*largest' a value .* from Maximum", caplog.text)


def by_scattering(old: Any, new: Any) -> Any:
    return tf.tensor_scatter_nd_add(old, [[0]], new[:1])


def by_choice(old: Any, new: Any) -> Any:
    return tf.where(new > 0, old + new, old)


def by_many_sums(old: Any, new: Any) -> Any:
    return sum([new] * 500) + old


UPDATES = [
    (by_scattering, False),
    (by_choice, False),
    (by_many_sums, False),
    (lambda old, new: tf.stack([old[0] + new[0], old[1]]), False),
    (lambda old, new: tf.cast(tf.cast(old, tf.float64) - tf.cast(new, tf.float64), tf.float32), False),
    (lambda old, new: tf.zeros_like(old), False),
    (lambda old, new: 0.9 * old + 0.1 * new, True),
    (lambda old, new: sum([new, new]), True),  # Python's sum begins with 0
    (lambda old, new: new, True),
]


def test_every_way_to_add_is_known_and_others_are_warned_of(strategy, caplog) -> None:
    for number, (update, warns) in enumerate(UPDATES):
        with strategy.scope():
            state = tf.Variable(
                [0.0, 0.0],
                trainable=False,
                name=f"state_{number}",
                synchronization=tf.VariableSynchronization.ON_READ,
                aggregation=tf.VariableAggregation.SUM,
            )

        def step(update: Any = update, state: Any = state) -> None:
            state.assign(update(state.read_value(), tf.random.uniform([2])))

        caplog.clear()
        with caplog.at_level(logging.WARNING):
            tf.function(lambda step=step: strategy.run(step)).get_concrete_function()
        assert (WARNING in caplog.text) == warns, number
