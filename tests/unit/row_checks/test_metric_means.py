"""Metrics that get a number for each batch which is no mean over rows are warned of; two replicas of one process."""

from __future__ import annotations

import logging
import re
from typing import Any, Sequence

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402
from tests.support.own_steps import compiled_model, model_of  # noqa: E402

pytestmark = pytest.mark.keras
keras = tf.keras
X, Y = (
    np.random.RandomState(seed).randn(14, 3).astype("float32")[:, :columns]
    for seed, columns in ((0, 3), (1, 2))
)


def errors(labels: Any, outputs: Any) -> Any:
    return tf.abs(tf.cast(labels, tf.float32) - outputs)


def root(labels: Any, outputs: Any) -> Any:
    return tf.sqrt(tf.reduce_mean(errors(labels, outputs) ** 2))


def greatest(labels: Any, outputs: Any) -> Any:
    return tf.reduce_max(errors(labels, outputs))


def f1(labels: Any, outputs: Any) -> Any:
    real, found = tf.cast(labels > 0, tf.float32), tf.cast(outputs > 0, tf.float32)
    return 2 * tf.reduce_sum(real * found) / (tf.reduce_sum(real) + tf.reduce_sum(found) + 1e-7)


def pearson(labels: Any, outputs: Any) -> Any:
    labels, outputs = labels - tf.reduce_mean(labels), outputs - tf.reduce_mean(outputs)
    return tf.reduce_sum(labels * outputs) / (tf.norm(labels) * tf.norm(outputs) + 1e-7)


def r2(labels: Any, outputs: Any) -> Any:
    spread = tf.reduce_sum((labels - tf.reduce_mean(labels, axis=0)) ** 2)
    return 1 - tf.reduce_sum(errors(labels, outputs) ** 2) / (spread + 1e-7)


def right(labels: Any, outputs: Any) -> Any:
    return tf.reduce_sum(tf.cast(errors(labels, outputs) < 0.5, tf.int32))


def mean(labels: Any, outputs: Any) -> Any:
    return 100 * tf.reduce_mean(errors(labels, outputs))


def quotient_of_rows(labels: Any, outputs: Any) -> Any:
    return tf.reduce_sum(errors(labels, outputs)) / tf.cast(tf.shape(outputs)[0], tf.float32)


def of_rows(labels: Any, outputs: Any) -> Any:
    return tf.sqrt(tf.reduce_mean(errors(labels, outputs) ** 2, axis=1))


def mean_of_rows(labels: Any, outputs: Any) -> Any:
    return tf.reduce_mean(of_rows(labels, outputs))


def constant(labels: Any, outputs: Any) -> Any:
    del labels, outputs
    return tf.constant(3.0)


def root_of_all(labels: Any, outputs: Any) -> Any:
    return root(*tfs.joint_rows((labels, outputs)))


MEANS = [mean, quotient_of_rows, of_rows, mean_of_rows, constant, root_of_all]
NO_MEANS = [root, greatest, f1, pearson, r2, right]


@pytest.fixture
def strategy() -> Any:
    keras.utils.set_random_seed(1)  # a greatest error is found with all but a few weights
    return tfs.CollectiveAllReduceStrategy(devices=["CPU:0", "CPU:1"])


@pytest.fixture
def warned(caplog) -> Any:
    """Returns a function that tells the names of the metrics which were warned of, and that there is no other warning."""
    caplog.set_level(logging.WARNING)

    def names() -> list:
        messages = [each.getMessage() for each in caplog.records if each.name == "tf_strategies"]
        return [re.match(r"Metric '(\w+)' is given .* no mean over rows .*", each)[1] for each in messages]

    return names


def dataset() -> Any:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)


def compiled(metrics: Sequence[Any], **how: Any) -> Any:
    return compiled_model(keras.Model, [keras.layers.Dense(2)], loss="mse", metrics=list(metrics), **how)


@pytest.mark.parametrize("trains", [True, False])
def test_functions_that_return_no_mean_over_rows_are_warned_of_once(trains: bool, strategy, warned) -> None:
    with strategy.scope():
        model = compiled([*MEANS, *NO_MEANS])
    if trains:
        model.fit(dataset(), validation_data=dataset(), verbose=0)
    model.evaluate(dataset(), verbose=0)
    assert sorted(warned()) == sorted(each.__name__ for each in NO_MEANS)


def test_functions_that_are_not_warned_of_show_the_same_as_in_one_process(strategy) -> None:
    def logs() -> dict:
        keras.utils.set_random_seed(1)
        model = compiled(MEANS)
        return model.fit(X, Y, batch_size=9, shuffle=False, verbose=0).history

    with strategy.scope():
        together = logs()
    alone = logs()
    assert sorted(together) == sorted(alone)
    for name, values in alone.items():
        np.testing.assert_allclose(together[name], values, rtol=1e-5, err_msg=name)


def test_metric_classes_and_names_of_keras_are_not_looked_at(strategy, warned, monkeypatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("looked at")

    classes = ["RootMeanSquaredError", "MeanSquaredError", "BinaryAccuracy", "CosineSimilarity"]
    monkeypatch.setattr("tf_strategies.row_checks.loss_means.LossMeans.look_at_metric", refuse)
    with strategy.scope():
        model = compiled(["mae", "accuracy", *(getattr(keras.metrics, each)() for each in classes)])
        inputs = keras.layers.Input((3,))
        several = keras.Model(inputs, [keras.layers.Dense(2)(inputs), keras.layers.Dense(2)(inputs)])
        several.compile("sgd", ["mse", "mae"])
        binary = compiled_model(
            keras.Model,
            [keras.layers.Dense(2, activation="sigmoid")],
            loss="binary_crossentropy",
            metrics=[keras.metrics.AUC(), keras.metrics.Precision()],
            weighted_metrics=["mse"],
        )
    model.fit(dataset(), validation_data=dataset(), verbose=0)
    several.fit(dataset().map(lambda x, y: (x, (y, y))), verbose=0)
    binary.fit(dataset().map(lambda x, y: (x, tf.cast(y > 0, tf.float32), y[:, 0] ** 2)), verbose=0)
    assert warned() == []


def own_model(update: Any, loss_of: Any = mean) -> Any:
    """Returns a model whose step gives its metric what `update` says."""
    metric = keras.metrics.Mean(name="own")

    def loss_and_metric(outputs: Any, labels: Any) -> Any:
        loss = loss_of(labels, outputs)
        update(metric, labels, outputs, loss)  # before the gradient
        return loss

    return model_of(loss_and_metric)


def weighted(metric: Any, labels: Any, outputs: Any, loss: Any) -> None:
    valid = tf.cast(labels > 0, tf.float32)
    value = tf.math.divide_no_nan(tf.reduce_sum(valid * errors(labels, outputs)), tf.reduce_sum(valid))
    metric.update_state(value, sample_weight=tf.reduce_sum(valid))


UPDATES = {
    "root": (lambda metric, labels, outputs, loss: metric.update_state(root(labels, outputs)), True),
    "called": (lambda metric, labels, outputs, loss: metric(greatest(labels, outputs)), True),
    "loss": (lambda metric, labels, outputs, loss: metric.update_state(loss), False),
    "rows": (lambda metric, labels, outputs, loss: metric.update_state(of_rows(labels, outputs)), False),
    "number": (lambda metric, labels, outputs, loss: metric.update_state(2.0), False),
    "weighted by what it is a mean over": (weighted, False),
}


@pytest.mark.parametrize("name", UPDATES)
def test_numbers_that_a_step_gives_to_a_mean_are_looked_at(name: str, strategy, warned) -> None:
    update, warns = UPDATES[name]
    with strategy.scope():
        model = own_model(update)
    model.fit(dataset(), verbose=0)
    assert warned() == ["own"] * warns


def test_a_loss_that_is_given_to_a_metric_is_warned_of_as_a_loss(strategy, caplog) -> None:
    for loss_of in (root, greatest):
        with strategy.scope():
            model = own_model(UPDATES["loss"][0], loss_of)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            model.fit(dataset(), verbose=0)
        assert len(re.findall("no mean over rows", caplog.text)) == 1
        assert "A loss is no mean over rows" in caplog.text


def test_a_number_that_is_returned_and_given_to_a_metric_is_warned_of_once(strategy, warned) -> None:
    with strategy.scope():
        metric = keras.metrics.Mean(name="own")

        def number_of(x: Any) -> Any:
            value = tf.reduce_max(x)
            metric.update_state(value)
            return value

        model = model_of(lambda outputs, labels: mean(labels, outputs), number_of)
    model.fit(dataset(), verbose=0)
    assert warned() == ["own"]


def test_classes_of_the_user_that_give_a_mean_such_a_number_are_warned_of(strategy, warned) -> None:
    class Root(keras.metrics.Mean):
        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            return super().update_state(root(y_true, y_pred))

    with strategy.scope():
        model = compiled([Root(name="own")])
    model.fit(dataset(), verbose=0)
    assert warned() == ["own"]


@pytest.mark.skipif(hasattr(keras, "ops"), reason="Keras 3 has no add_metric")
def test_metrics_that_a_layer_adds_are_warned_of(strategy, warned) -> None:
    class Watched(keras.layers.Layer):
        def call(self, rows: Any) -> Any:
            self.add_metric(tf.reduce_max(rows), name="own")
            self.add_metric(tf.reduce_mean(rows), name="average")
            return rows

    with strategy.scope():
        model = compiled_model(keras.Model, [keras.layers.Dense(2), Watched()], loss="mse")
    model.fit(dataset(), verbose=0)
    assert warned() == ["own"]


def test_a_worker_with_one_replica_is_told_nothing(warned) -> None:
    with tfs.CollectiveAllReduceStrategy(devices=["CPU:0"]).scope():
        model = compiled(NO_MEANS)
    model.fit(dataset(), verbose=0)
    assert warned() == []
