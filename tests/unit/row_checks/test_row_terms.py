"""Losses in which rows are compared with each other are warned of; two replicas of one process."""

from __future__ import annotations

import logging
from typing import Any, Callable

import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402
from tests.support.own_steps import compiled_model, model_of  # noqa: E402
from tf_strategies.row_checks.row_terms import Kind, kind_of  # noqa: E402

pytestmark = pytest.mark.keras
keras = tf.keras
WARNING = "depends on the other rows of the batch"


def nearest_of(rows: Any) -> Any:
    return tf.reduce_sum((rows[:, None] - rows[None]) ** 2, axis=2)


def contrastive_of_rows(outputs: Any, labels: Any) -> Any:
    rows = tf.math.l2_normalize(outputs, axis=1)
    others = tf.math.l2_normalize(labels, axis=1)
    same = tf.range(tf.shape(rows)[0])
    return tf.nn.sparse_softmax_cross_entropy_with_logits(same, tf.matmul(rows, others, transpose_b=True))


def contrastive(outputs: Any, labels: Any) -> Any:
    return tf.reduce_mean(contrastive_of_rows(outputs, labels))


def of_classes(outputs: Any, labels: Any) -> Any:
    classes = tf.cast(labels[:, 0] > 0, tf.int32)
    return tf.reduce_mean(tf.math.unsorted_segment_mean(tf.reduce_sum(outputs**2, axis=1), classes, 2))


def spread(outputs: Any, labels: Any) -> Any:
    return tf.reduce_mean(tf.nn.relu(1 - tf.math.reduce_std(outputs, axis=0)))


def hardest(outputs: Any, labels: Any) -> Any:
    return tf.reduce_mean(tf.math.top_k(tf.reduce_sum((outputs - labels) ** 2, axis=1), k=2).values)


def nested(outputs: Any, labels: Any) -> Any:
    return tf.reduce_mean(tf.map_fn(lambda row: tf.reduce_sum(tf.abs(row - labels)), outputs))


@tf.function
def printed(outputs: Any, labels: Any) -> Any:
    tf.print("printed")
    return tf.reduce_mean(outputs * labels)


@tf.function(jit_compile=True)
def compiled(outputs: Any, labels: Any) -> Any:
    return tf.reduce_mean(nearest_of(outputs) * nearest_of(labels))


def repeated(outputs: Any, labels: Any) -> Any:
    return tf.reduce_mean(tf.map_fn(lambda row: tf.reduce_sum(row**2), outputs * labels))


def mean_of_shuffled(outputs: Any) -> Any:
    order = tf.random.shuffle(tf.range(tf.shape(outputs)[0]))
    return tf.reduce_mean(outputs * tf.gather(outputs, order))


LOSSES: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "squares": (lambda outputs, labels: tf.reduce_mean((outputs - labels) ** 2), False),
    "noise": (lambda outputs, labels: tf.reduce_mean(outputs * tf.random.normal(tf.shape(outputs))), False),
    "dropout": (lambda outputs, labels: tf.reduce_mean(tf.nn.dropout(outputs, 0.3) ** 2), False),
    "a loop": (repeated, False),
    "all rows": (lambda outputs, labels: contrastive(*tfs.joint_rows((outputs, labels))), False),
    "shuffled": (lambda outputs, labels: mean_of_shuffled(outputs), False),
    "contrastive": (contrastive, True),
    "of classes": (of_classes, True),
    "hardest": (hardest, True),
    "spread": (spread, True),
    "nested": (nested, True),
    "printed": (printed, False),
    "compiled": (compiled, True),
}


SUMS: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "mean": (lambda outputs, labels: tf.reduce_mean(tf.nn.dropout(outputs, 0.3) ** 2) + 0.5, False),
    "sum": (lambda outputs, labels: tf.reduce_sum(tf.nn.softmax(outputs) * labels), True),
    "by a constant": (lambda outputs, labels: tf.reduce_sum(outputs * labels) / 8.0, True),
    "vector": (lambda outputs, labels: tf.reduce_sum(outputs * labels, axis=1), True),
    "by rows": (
        lambda outputs, labels: tf.reduce_sum(outputs * labels) / tf.cast(tf.shape(outputs)[0], tf.float32),
        False,
    ),
}


UNKNOWN = ("all rows", "shuffled", "printed")


class Attention(keras.layers.Layer):
    """Attends to the other rows of the batch."""

    def call(self, rows: Any) -> Any:
        return tf.nn.softmax(tf.matmul(rows, rows, transpose_b=True)) @ rows


class Scaled(keras.layers.Layer):
    def call(self, rows: Any) -> Any:
        return rows / (1 + tf.reduce_sum(rows**2, axis=1, keepdims=True))


def train(model: Any) -> None:
    random = tf.random.Generator.from_seed(1)
    dataset = tf.data.Dataset.from_tensor_slices((random.normal([14, 3]), random.normal([14, 2])))
    model.fit(dataset.batch(8), verbose=0)


@pytest.fixture
def kinds(monkeypatch) -> list:
    """Returns the list of what is found."""
    found = []

    def noted(*arguments: Any) -> Any:
        found.append(kind_of(*arguments))
        return found[-1]

    monkeypatch.setattr("tf_strategies.row_checks.loss_means.kind_of", noted)
    return found


@pytest.fixture
def strategy() -> Any:
    return tfs.CollectiveAllReduceStrategy(devices=["CPU:0", "CPU:1"])


@pytest.mark.parametrize("name", LOSSES)
def test_a_step_that_compares_rows_is_warned_of_once(name: str, strategy, kinds, caplog) -> None:
    loss_of, warns = LOSSES[name]
    with strategy.scope():
        model = model_of(loss_of)
    with caplog.at_level(logging.WARNING):
        train(model)
    assert caplog.text.count(WARNING) == warns
    expected = None if name in UNKNOWN else Kind.COMPARED if warns else Kind.MEAN
    assert kinds[0] is expected


@pytest.mark.parametrize("name", SUMS)
def test_a_step_that_adds_up_rows_is_warned_of_once(name: str, strategy, caplog) -> None:
    loss_of, warns = SUMS[name]
    with strategy.scope():
        model = model_of(loss_of)
    with caplog.at_level(logging.WARNING):
        train(model)
    assert caplog.text.count("A loss is a sum over rows") == warns


def test_compiled_sums_are_not_warned_of(strategy, caplog) -> None:
    with strategy.scope():
        layers = [Scaled(), keras.layers.Dense(2, kernel_regularizer="l2")]
        model = compiled_model(keras.Model, layers, loss=keras.losses.MeanSquaredError(reduction="sum"))
    with caplog.at_level(logging.WARNING):
        train(model)
    assert "over rows" not in caplog.text


def test_normalizations_of_a_batch_are_not_warned_of(strategy, kinds, caplog) -> None:
    with strategy.scope():
        normalizations = [
            keras.layers.BatchNormalization(),
            keras.layers.BatchNormalization(synchronized=True),
        ]
        model = model_of(LOSSES["squares"][0], layers=[*normalizations, keras.layers.Dropout(0.2)])
    with caplog.at_level(logging.WARNING):
        train(model)
    assert WARNING not in caplog.text
    assert kinds[0] is Kind.MEAN


def test_a_function_that_writes_variables_is_not_called_once_more(strategy) -> None:
    with strategy.scope():
        normalization = keras.layers.BatchNormalization(momentum=0.5)
        normalization.build((None, 2))

    @tf.function
    def squares(outputs: Any, labels: Any) -> Any:
        return tf.reduce_mean((normalization(outputs, training=True) - labels) ** 2)

    with strategy.scope():
        model = model_of(squares)
    model.optimizer.learning_rate = 0.0
    ones = tf.ones([8, 3])
    model.train_on_batch(ones, tf.ones([8, 2]))
    expected = 0.5 * model(ones)[0]
    assert abs(normalization.moving_mean.numpy() - expected.numpy()).max() < 1e-6


def test_layers_and_losses_of_the_user_are_looked_at_in_the_step_of_keras(strategy, caplog) -> None:
    kinds = [
        ([Scaled()], lambda labels, outputs: tf.reduce_sum((labels - outputs) ** 2, axis=1), 0),
        ([Attention()], "mse", 1),
        ([keras.layers.Dense(2, activation=lambda rows: tf.nn.softmax(rows, axis=0))], "mse", 1),
        ([], lambda labels, outputs: contrastive_of_rows(outputs, labels), 1),
    ]
    for layers, loss, warnings in kinds:
        caplog.clear()
        with strategy.scope():
            model = compiled_model(keras.Model, [*layers, keras.layers.Dense(2)], loss=loss)
        with caplog.at_level(logging.WARNING):
            train(model)
        assert caplog.text.count(WARNING) == warnings, loss


def test_what_keras_computes_alone_is_not_computed_again(strategy, monkeypatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("computed")

    monkeypatch.setattr("tf_strategies.row_checks.loss_means.kind_of", refuse)
    with strategy.scope():
        model = compiled_model(keras.Model, [keras.layers.Dense(2)], loss="mse")
    train(model)
