"""Batch normalization: its statistics over all replicas, and when they are exchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.cluster.collective.modes.models import FEATURES, calls, keras, make_model, require_as_alone, rows
from tests.support.replicas import require_equal_everywhere


def check_moving_averages_are_the_mean_of_the_replicas(strategy: Any) -> None:
    """With statistics of each replica; with synchronized ones also the weights are those of one process."""
    replicas = strategy.num_replicas_in_sync
    count, fit = 4 * replicas * 3, {"batch_size": 4 * replicas, "shuffle": False, "verbose": 0, "epochs": 1}
    x, y = rows(count)
    for synchronized in (False, True):

        def layers() -> list:
            return [keras.layers.BatchNormalization(momentum=0.8, synchronized=synchronized)]

        if synchronized:
            model = require_as_alone(strategy, layers, fit=fit, count=count)
        else:
            model = make_model(strategy.scope(), layers)
            model.fit(x, y, **fit)
        mean, variance = np.zeros(FEATURES), np.ones(FEATURES)
        for batch in np.split(x.astype("float64"), 3):
            parts = [batch] if synchronized else np.split(batch, replicas)
            mean = 0.8 * mean + 0.2 * np.mean([part.mean(axis=0) for part in parts], axis=0)
            variance = 0.8 * variance + 0.2 * np.mean([part.var(axis=0) for part in parts], axis=0)
        layer = next(each for each in model.layers if "normalization" in each.name)
        np.testing.assert_allclose(layer.moving_mean.numpy(), mean, atol=1e-5)
        np.testing.assert_allclose(layer.moving_variance.numpy(), variance, atol=1e-4)
        require_equal_everywhere(strategy, model.weights)


def check_statistics_with_partial_and_empty_batches(strategy: Any) -> None:
    replicas = strategy.num_replicas_in_sync
    count = 2 * replicas + 1
    x, y = rows(count)
    model = make_model(strategy.scope(), lambda: [keras.layers.BatchNormalization(momentum=0.5)])
    model.fit(x, y, batch_size=2 * replicas, epochs=2, shuffle=False, verbose=0)
    require_equal_everywhere(strategy, model.weights)
    mean = np.zeros(FEATURES)
    for _ in range(2):
        mean = 0.5 * mean + 0.5 * x[:-1].mean(axis=0)
        mean = 0.5 * mean + 0.5 * x[-1]
    layer = next(each for each in model.layers if "normalization" in each.name)
    np.testing.assert_allclose(layer.moving_mean.numpy(), mean, atol=1e-5)


def check_evaluation_does_not_exchange_statistics(strategy: Any) -> None:
    with strategy.scope():
        layer = keras.layers.BatchNormalization()
        layer.build((None, FEATURES))
    x = rows(6)[0]

    @tf.function
    def step(training: bool) -> Any:
        return strategy.run(lambda: layer(x, training=training))

    for training, expected in ((False, 0), (True, 1)):
        step(training)
        before = calls(strategy)
        step(training)
        assert calls(strategy) - before == expected, (training, calls(strategy) - before)


def check_statistics_assigned_in_a_function_traced_before(strategy: Any) -> None:
    with strategy.scope():
        layer = keras.layers.BatchNormalization()
        layer.build((None, FEATURES))
    x = tf.constant(rows(6)[0])
    inner = tf.function(lambda inputs: layer(inputs, training=True))

    def replica() -> Any:
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        return inner(x * tf.cast(number + 1, tf.float32))

    for _ in range(2):
        step = tf.function(lambda: strategy.run(replica))
        step()
        before = calls(strategy)
        step()
        assert calls(strategy) - before == 1
        require_equal_everywhere(strategy, layer.weights)


def check_what_cannot_be_seen_is_refused(strategy: Any) -> None:
    """strategy.run called eagerly, and a tf.function of the replica that gathers, or assigns statistics."""
    with strategy.scope():
        layer = keras.layers.BatchNormalization()
        layer.build((None, FEATURES))
    x = tf.constant(rows(6)[0])
    total = tf.function(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.ones([])))
    train = tf.function(lambda: layer(x, training=True))
    for inner in (total, train):
        with pytest.raises((NotImplementedError, RuntimeError), match=r"strategy\.run"):
            strategy.run(lambda: inner())
