"""Losses that are no means over rows are warned of; two replicas of one process."""

from __future__ import annotations

import logging
from typing import Any

import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402
from tests.support.own_steps import model_of  # noqa: E402

pytestmark = pytest.mark.keras
keras = tf.keras
WARNING = "A loss is no mean over rows"


def masked_mean(losses: Any, labels: Any) -> Any:
    valid = tf.cast(labels > 0, losses.dtype)
    return tf.reduce_sum(losses * valid) / tf.reduce_sum(valid)


def standardized(losses: Any, labels: Any) -> Any:
    return tf.reduce_mean(labels * losses / (tf.math.reduce_std(losses) + 1e-6))


def of_keras(losses: Any, labels: Any) -> Any:
    loss = keras.losses.MeanSquaredError()
    return loss(tf.ones_like(losses), losses, sample_weight=tf.cast(labels[:, 0] > 0, losses.dtype))


LOSSES = [
    ("mean", lambda losses, labels: tf.reduce_mean(losses), False),
    ("weighted", lambda losses, labels: tf.reduce_mean(losses * labels), False),
    (
        "by rows",
        lambda losses, labels: tf.reduce_sum(losses) / tf.cast(tf.shape(losses)[0], tf.float32),
        False,
    ),
    ("by the batch", lambda losses, labels: tf.reduce_sum(losses) / 8.0, False),
    ("unit rows", lambda losses, labels: tf.reduce_mean(tf.math.l2_normalize(losses, axis=1)), False),
    (
        "weighted sum",
        lambda losses, labels: 0.5 * tf.reduce_mean(losses) - tf.reduce_mean(tf.abs(labels)),
        False,
    ),
    ("captured", lambda losses, labels: tf.reduce_mean(losses) / tf.reduce_sum(WEIGHTS), False),
    *(
        [("of Keras", of_keras, False)] if hasattr(keras, "ops") else []
    ),  # Keras 2 refuses it in a step of one's own
    ("all rows", lambda losses, labels: masked_mean(*tfs.joint_rows((losses, labels))), False),
    ("masked mean", masked_mean, True),
    ("share of means", lambda losses, labels: tf.reduce_mean(losses) / tf.reduce_mean(labels), True),
    ("standardized", standardized, True),
    ("boolean mask", lambda losses, labels: tf.reduce_mean(tf.boolean_mask(losses, labels > 0)), True),
    ("root", lambda losses, labels: tf.sqrt(tf.reduce_mean(losses**2)), True),
    ("hinge of means", lambda losses, labels: tf.maximum(0.0, 1.0 - tf.reduce_mean(losses)), True),
    ("product of means", lambda losses, labels: tf.reduce_mean(losses) * tf.reduce_mean(labels), True),
]
WEIGHTS = tf.constant([1.0, 2.0])


@pytest.mark.parametrize(
    ("loss_of", "warns"), [each[1:] for each in LOSSES], ids=[name for name, *_ in LOSSES]
)
def test_what_is_no_mean_over_rows_is_warned_of(loss_of: Any, warns: bool, caplog) -> None:
    strategy = tfs.CollectiveAllReduceStrategy(devices=["CPU:0", "CPU:1"])  # each warns once
    with strategy.scope():
        model = model_of(loss_of)
    with caplog.at_level(logging.WARNING):
        model.train_on_batch(tf.ones([8, 3]), tf.ones([8, 2]))
        model.train_on_batch(tf.ones([6, 3]), tf.ones([6, 2]))
    assert caplog.text.count(WARNING) == warns


def test_each_such_loss_is_warned_of(caplog) -> None:
    strategy = tfs.CollectiveAllReduceStrategy(devices=["CPU:0", "CPU:1"])
    chosen = [loss_of for name, loss_of, warns in LOSSES if name in ("masked mean", "root")]
    with caplog.at_level(logging.WARNING):
        for loss_of in chosen:
            with strategy.scope():
                model = model_of(loss_of)
            model.train_on_batch(tf.ones([8, 3]), tf.ones([8, 2]))
    assert caplog.text.count(WARNING) == 2


RETURNED = {
    "mean": (lambda x: tf.reduce_mean(x), ""),
    "step": (lambda x: tf.constant(3), ""),
    "all rows": (lambda x: tf.reduce_max(tfs.joint_rows(x)), ""),
    "rows of all": (lambda x: tf.shape(tfs.joint_rows(x))[0], ""),
    "root": (
        lambda x: tf.sqrt(tf.reduce_mean(x**2)),
        "A number that train_step returns is no mean over rows: Sqrt",
    ),
    "greatest": (
        lambda x: tf.reduce_max(x),
        "A number that train_step returns is no mean over rows: what a row adds",
    ),
    "rows": (lambda x: tf.shape(x)[0], "computes from its own rows"),
    "right": (lambda x: tf.reduce_sum(tf.cast(x > 0, tf.int32)), "computes from its own rows"),
}


@pytest.mark.parametrize("name", RETURNED)
def test_a_number_that_a_step_returns_is_warned_of_unless_it_is_a_mean(name: str, caplog) -> None:
    number_of, warning = RETURNED[name]
    with tfs.CollectiveAllReduceStrategy(devices=["CPU:0", "CPU:1"]).scope():
        model = model_of(lambda losses, labels: tf.reduce_mean(losses), number_of)
    with caplog.at_level(logging.WARNING):
        model.fit(tf.data.Dataset.from_tensors((tf.ones([3]), tf.ones([2]))).repeat(8).batch(8), verbose=0)
    warnings = [each for each in caplog.messages if "train_step returns" in each]
    assert [warning in each for each in warnings] == [True] * bool(warning)


def test_one_replica_is_told_nothing(caplog) -> None:
    with tfs.CollectiveAllReduceStrategy(devices=["CPU:0"]).scope():
        model = model_of(masked_mean)
    with caplog.at_level(logging.WARNING):
        model.train_on_batch(tf.ones([8, 3]), tf.ones([8, 2]))
    assert WARNING not in caplog.text


def test_masks_of_keras_count_once_and_are_not_warned_of(caplog) -> None:
    strategy = tfs.CollectiveAllReduceStrategy(devices=["CPU:0", "CPU:1"])
    with strategy.scope():
        layers = [keras.layers.Embedding(5, 2, mask_zero=True), keras.layers.Dense(1)]
        model = keras.Sequential([keras.layers.Input([3]), *layers])
        model.compile("sgd", "mse")
    with caplog.at_level(logging.WARNING):
        model.fit(tf.constant([[1, 0, 0], [2, 3, 4]] * 4), tf.ones([8, 3, 1]), batch_size=8, verbose=0)
    assert WARNING not in caplog.text
