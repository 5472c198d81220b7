"""Variables that replicas write from their rows, but not as a mean over them, are warned of; two replicas of one process."""

from __future__ import annotations

import logging
from typing import Any, Callable

import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402

pytestmark = pytest.mark.keras
keras = tf.keras
WARNING = "is no mean over them"


def all_reduce(value: Any) -> Any:
    return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, value)


def weighted_mean(rows: Any) -> Any:
    weights = tf.cast(rows[:, :1] > 0, tf.float32)
    return tf.math.divide_no_nan(tf.reduce_sum(weights * rows, axis=0), tf.reduce_sum(weights))


def of_classes(rows: Any) -> Any:
    one_hot = tf.one_hot(tf.argmax(rows, axis=1), 2)
    totals = tf.matmul(one_hot, rows, transpose_a=True)
    return tf.math.divide_no_nan(totals, tf.reduce_sum(one_hot, axis=0)[:, tf.newaxis])[0]


# What a variable of two elements, that was `old`, becomes with rows [n, 2], and whether that is warned of.
WRITES = [
    ("mean", lambda old, rows: 0.9 * old + 0.1 * tf.reduce_mean(rows, axis=0), False),
    ("mean of squares", lambda old, rows: tf.reduce_mean((rows - old) ** 2, axis=[0]), False),
    ("sum by rows", lambda old, rows: tf.reduce_sum(rows, 0) / tf.cast(tf.shape(rows)[0], tf.float32), False),
    ("weighted mean", lambda old, rows: weighted_mean(rows), False),
    ("sum of means", lambda old, rows: old + tf.reduce_sum(tf.reduce_mean(rows, axis=0)), False),
    ("no rows", lambda old, rows: 0.5 * old + tf.random.uniform([2]), False),
    ("kept if empty", lambda old, rows: tf.where(tf.shape(rows)[0] > 0, tf.reduce_mean(rows, 0), old), False),
    ("sum of all replicas", lambda old, rows: all_reduce(tf.reduce_sum(rows, axis=0)), False),
    ("all rows", lambda old, rows: 0.9 * old + tf.reduce_sum(tfs.joint_rows(rows), axis=0), False),
    (
        "greatest of all rows",
        lambda old, rows: tf.maximum(old, tf.reduce_max(tfs.joint_rows(rows), axis=0)),
        False,
    ),
    ("sum", lambda old, rows: 0.9 * old + 0.1 * tf.reduce_sum(rows, axis=0), True),
    ("number of rows", lambda old, rows: old + tf.cast(tf.shape(rows)[0], tf.float32), True),
    ("sum by a constant", lambda old, rows: tf.reduce_sum(rows, axis=0) / 32.0, True),
    ("sum of means of rows", lambda old, rows: old + tf.reduce_sum(tf.reduce_mean(rows, axis=1)), True),
    ("greatest", lambda old, rows: tf.maximum(old, tf.reduce_max(rows, axis=0)), True),
    ("of classes", lambda old, rows: 0.9 * old + 0.1 * of_classes(rows), True),
    (
        "deviation",
        lambda old, rows: 0.9 * old + 0.1 * tf.sqrt(tf.reduce_mean(rows**2, axis=0)),
        True,
    ),
    ("greatest mean", lambda old, rows: tf.maximum(old, tf.reduce_mean(rows, axis=0)), True),
    ("queue", lambda old, rows: tf.concat([rows[:, 0], old], 0)[:2], True),
    ("first row", lambda old, rows: rows[0], True),
]


def step_of(strategy: Any, name: str, write: Callable[[Any, Any], Any]) -> Callable[[Any], None]:
    with strategy.scope():
        state = tf.Variable([0.0, 0.0], trainable=False, name=name.replace(" ", "_"))

    def step(rows: Any) -> None:
        state.assign(write(tf.convert_to_tensor(state), rows))

    return tf.function(lambda rows: strategy.run(step, args=(rows,)))


@pytest.mark.parametrize(("name", "write", "warns"), WRITES, ids=[name for name, *_ in WRITES])
def test_what_is_no_mean_over_rows_is_warned_of(name: str, write: Any, warns: bool, strategy, caplog) -> None:
    step = step_of(strategy, name, write)
    with caplog.at_level(logging.WARNING):
        step.get_concrete_function(tf.TensorSpec([None, 2]))
    assert (WARNING in caplog.text) == warns
    assert (f"variable '{name.replace(' ', '_')}'" in caplog.text) == warns


def test_a_function_within_the_step_is_looked_through(strategy, caplog) -> None:
    """Its arguments have the rows; what it has captured from outside of all functions has none."""
    constant = tf.ones([2])
    with strategy.scope():
        sums, constants = (
            tf.Variable([0.0, 0.0], trainable=False, name=name) for name in ("sums", "constants")
        )

    @tf.function
    def inner(rows: Any) -> Any:
        return strategy.run(step, args=(rows,))

    def step(rows: Any) -> None:
        sums.assign_add(tf.reduce_sum(rows, axis=0))
        constants.assign(2 * constant)

    with caplog.at_level(logging.WARNING):
        tf.function(lambda rows: inner(rows)).get_concrete_function(tf.TensorSpec([None, 2]))
    assert "variable 'sums'" in caplog.text
    assert "'constants'" not in caplog.text


class Total(keras.layers.Layer):
    def build(self, shape: Any) -> None:
        self.total = self.add_weight(shape=(2,), initializer="zeros", trainable=False, name="total")

    def call(self, rows: Any) -> Any:
        self.total.assign(tf.reduce_sum(rows, axis=0))
        return rows


def test_a_layer_is_warned_of_in_fit_with_batches_that_may_be_smaller(strategy, caplog) -> None:
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((2,)), Total(), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    with caplog.at_level(logging.WARNING):
        model.fit(tf.data.Dataset.from_tensors((tf.ones([2]), tf.ones([1]))).repeat(8).batch(4), verbose=0)
    assert WARNING in caplog.text


def test_layers_of_keras_are_not_warned_of(strategy, caplog) -> None:
    layers = [
        keras.layers.Input((4, 4, 3)),
        keras.layers.Conv2D(4, 2),
        keras.layers.BatchNormalization(),
        keras.layers.BatchNormalization(synchronized=True),
        keras.layers.Flatten(),
        *(
            [keras.layers.SpectralNormalization(keras.layers.Dense(3))]
            if tf.__version__ > "2.16"  # that of Keras 2.15 fails in any graph
            else []
        ),
        keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.5),
        keras.layers.Dense(1),
    ]
    with strategy.scope():
        model = keras.Sequential(layers)
        model.compile(keras.optimizers.Adam(), "mse", metrics=["mae"])
        words = keras.Sequential(
            [
                keras.layers.Input((5,), dtype="int32"),
                keras.layers.Embedding(5, 4, mask_zero=True),
                keras.layers.BatchNormalization(),
                keras.layers.GlobalAveragePooling1D(),
                keras.layers.Dense(1),
            ]
        )
        words.compile("sgd", "mse")
    with caplog.at_level(logging.WARNING):
        model.fit(tf.ones([12, 4, 4, 3]), tf.ones([12, 1]), batch_size=5, verbose=0)
        words.fit(tf.ones([12, 5], tf.int32), tf.ones([12, 1]), batch_size=5, verbose=0)
    assert WARNING not in caplog.text
