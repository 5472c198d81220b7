"""`train_on_batch`, `test_on_batch` and `predict_on_batch` take the global batch on every worker."""

from __future__ import annotations

import time
import unittest
from typing import Any, Callable

import numpy as np
import tensorflow as tf
from absl import logging

from tests.cluster.collective.modes.models import CLASSES, FEATURES, KERAS3, alone, keras, rows
from tests.support.replicas import require_equal_everywhere

# Also fewer rows than replicas, and numbers that change the shares of some workers only.
_COUNTS = (8, 7, 8, 1, 12)

_WITHOUT_DATASETS = KERAS3 and int(keras.__version__.split(".")[1]) >= 7


def check_batches_of_many_sizes_train_as_in_one_process(strategy: Any) -> None:
    x, y = rows(12)
    weights = np.linspace(0.5, 2.0, 12).astype("float32")
    model = _classifier(strategy.scope())
    single = _classifier(alone())
    for count in _COUNTS:
        for weighted in ({}, {"sample_weight": weights[:count]}):
            losses = [each.train_on_batch(x[:count], y[:count], **weighted) for each in (model, single)]
            np.testing.assert_allclose(*losses, rtol=2e-5, atol=2e-6)
        losses = [each.test_on_batch(x[:count], y[:count]) for each in (model, single)]
        np.testing.assert_allclose(*losses, rtol=2e-5, atol=2e-6)
    for mine, theirs in zip(model.get_weights(), single.get_weights()):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    require_equal_everywhere(strategy, model.weights)


def check_predict_on_batch_gives_the_rows_of_the_batch_everywhere(strategy: Any) -> None:
    x, _ = rows(24)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(CLASSES)])
    kernel, bias = model.get_weights()
    for count in (24, 24, 7, 1):
        got = model.predict_on_batch(x[:count])
        np.testing.assert_allclose(got, x[:count] @ kernel + bias, rtol=1e-5, atol=1e-5)
    with strategy.scope():
        model.compile(run_eagerly=True)
    np.testing.assert_allclose(model.predict_on_batch(x), x @ kernel + bias, rtol=1e-5, atol=1e-5)


def check_structures_and_tensors_of_single_batches(strategy: Any) -> None:
    x, y = rows(10)
    with strategy.scope():
        inputs = {
            "a": keras.layers.Input((FEATURES,), name="a"),
            "b": keras.layers.Input((FEATURES,), name="b"),
        }
        model = keras.Model(inputs, keras.layers.Dense(CLASSES)(keras.layers.Add()(list(inputs.values()))))
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    losses = [
        np.ravel(model.test_on_batch(part, labels))[0]
        for part, labels in (
            ({"a": x, "b": x}, y),
            ({"a": tf.constant(x), "b": tf.Variable(x)}, tf.constant(y)),
            ({"a": x.astype("float64"), "b": x}, y),
        )
    ]
    np.testing.assert_allclose(losses, losses[0], rtol=1e-6)


def check_batches_that_differ_between_workers(strategy: Any) -> None:
    x, y = rows(12)
    model = _classifier(strategy.scope())
    if _WITHOUT_DATASETS:
        with unittest.TestCase().assertLogs(logging.get_absl_logger(), "WARNING") as logs:
            for _ in range(3):
                model.train_on_batch(x + strategy.rank, y)
        assert sum("differ between workers" in line for line in logs.output) == 1, logs.output
        _refused(lambda: model.train_on_batch(x[:11], y), "11 and 12 rows")
        _refused(lambda: model.predict_on_batch(np.float32(1)), "a scalar")
    count = 12 - strategy.rank
    _refused(
        lambda: model.train_on_batch(x[:count], y[:count]),
        "between workers",
        strategy.name_of(0),
        strategy.name_of(1),
        "12",
        "11",
    )


def check_a_single_batch_takes_little_longer_than_a_step(strategy: Any) -> None:
    """A dataset for each batch would take the time of some fifty steps."""
    if not _WITHOUT_DATASETS:
        return
    x, y = rows(12)
    model = _classifier(strategy.scope())
    many = tf.data.Dataset.from_tensors((x, y)).repeat(120)

    def seconds(act: Any) -> float:
        act()
        begin = time.perf_counter()
        act()
        return time.perf_counter() - begin

    of_fit = seconds(lambda: model.fit(many, verbose=0))
    one_by_one = seconds(lambda: [model.train_on_batch(x, y) for _ in range(120)])
    assert one_by_one < 15 * of_fit, (one_by_one, of_fit)


def _classifier(scope: Any) -> Any:
    with scope:
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.layers.Input((FEATURES,)), keras.layers.Dense(CLASSES)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
    return model


def _refused(act: Callable[[], Any], *words: str) -> None:
    try:
        act()
    except ValueError as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError("no error")
