"""Losses of the rows of all replicas; two replicas of one process. The exactness tests have several workers."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402

pytestmark = pytest.mark.any_line
WARNING = "does not return one number for each row of the batch, but one for the whole batch"


def spread(outputs: tf.Tensor) -> tf.Tensor:
    """Returns the mean of all products of two rows."""
    return tf.reduce_mean(tf.matmul(outputs, outputs, transpose_b=True))


def of_replica(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    return spread(outputs)


def of_all(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    return spread(tfs.joint_rows(outputs))


def step(loss: Any, strategy: Any) -> np.ndarray:
    """Returns the weights after a step with seven rows, which two replicas cannot share evenly."""
    x = np.random.default_rng(0).standard_normal((7, 3)).astype("float32")
    with strategy.scope():
        model = tf.keras.Sequential([tf.keras.layers.Input((3,)), tf.keras.layers.Dense(2, use_bias=False)])
        model.compile(tf.keras.optimizers.SGD(0.1), loss)
    model.set_weights([np.arange(6, dtype="float32").reshape(3, 2) / 6])
    model.train_on_batch(x, x[:, :1])
    return model.get_weights()[0]


def test_a_loss_of_all_rows_is_that_of_one_process_and_one_of_a_replica_is_warned_of(
    strategy, caplog
) -> None:
    expected = step(of_replica, tf.distribute.get_strategy())
    with caplog.at_level(logging.WARNING):
        np.testing.assert_allclose(step(of_all, strategy), expected, rtol=1e-5)
        assert WARNING not in caplog.text
        assert np.max(np.abs(step(of_replica, strategy) - expected)) > 1e-3
    assert WARNING in caplog.text
    assert "tfs.joint_rows(y_true)" in caplog.text


def of_each_class(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(outputs, axis=0) / tf.reduce_sum(outputs**2, axis=0)


def of_whole_batch(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.reduce_mean(outputs**2))


def of_each_row(labels: tf.Tensor, outputs: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(outputs**2, axis=1)


def test_losses_of_classes_are_warned_of_and_each_loss_once(strategy, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        step(of_each_row, strategy)
        assert "does not return one number for each row" not in caplog.text
        for loss in (of_each_class, of_each_class, of_whole_batch):
            step(loss, strategy)
    for name, count in (("of_each_class", "2"), ("of_whole_batch", "one for the whole batch")):
        line = f"The loss {name} does not return one number for each row of the batch, but {count}."
        assert caplog.text.count(line) == 1


def test_replicas_of_a_loop_get_the_rows_in_order(strategy) -> None:
    def rows() -> dict:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        return tfs.joint_rows(
            {"a": tf.fill([2], replica), "b": tf.fill([1, 3], tf.cast(replica, tf.float64))}
        )

    for found in strategy.experimental_local_results(tf.function(lambda: strategy.run(rows))()):
        np.testing.assert_array_equal(found["a"], [0, 0, 1, 1])
        np.testing.assert_array_equal(found["b"], [[0, 0, 0], [1, 1, 1]])
