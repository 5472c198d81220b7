"""Ways to compile, run and reuse a model; those that cannot work are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.collective.modes.models import CLASSES, FEATURES, KERAS3, keras, make_model, rows
from tests.support.replicas import require_equal_everywhere


def check_xla_around_the_step_is_refused(strategy: Any) -> None:
    x, y = rows(12)
    model = make_model(strategy.scope(), list, jit_compile=True)
    try:
        model.fit(x, y, batch_size=12, verbose=0)
    except tfs.OptionsError as error:
        assert f"jit_compile=True) cannot be used with {strategy.size} workers" in str(error)
    else:
        raise AssertionError("no error")

    def total() -> Any:
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.ones([]))

    for step in (
        tf.function(lambda: strategy.run(total), jit_compile=True),
        lambda: strategy.run(tf.function(total, jit_compile=True)),
    ):
        with pytest.raises(NotImplementedError, match=r"inside tf\.function\(jit_compile=True\)"):
            step()

    @tf.function
    def computed() -> Any:
        square = tf.function(lambda x: x * x, jit_compile=True)
        return strategy.run(
            lambda: tf.distribute.get_replica_context().all_reduce("SUM", square(tf.ones([])))
        )

    for part in strategy.experimental_local_results(computed()):
        assert float(part) == strategy.num_replicas_in_sync


def check_run_eagerly_and_steps_per_execution_change_nothing(strategy: Any) -> None:
    x, y = rows(60)

    def weights(**modes: Any) -> list:
        model = make_model(strategy.scope(), lambda: [keras.layers.BatchNormalization()], **modes)
        history = model.fit(x, y, batch_size=12, epochs=2, shuffle=False, verbose=0).history
        require_equal_everywhere(strategy, [*model.weights, history["loss"]])
        assert int(model.optimizer.iterations.numpy()) == 10
        return model.get_weights()

    expected = weights()
    for modes in ({"run_eagerly": True}, {"steps_per_execution": 4}):
        for mine, other in zip(weights(**modes), expected):
            np.testing.assert_allclose(mine, other, rtol=0, atol=1e-5, err_msg=str(modes))


def check_fit_evaluate_freeze_and_fit_again(strategy: Any) -> None:
    x, y = rows(36)
    model = make_model(strategy.scope(), lambda: [keras.layers.Dense(4), keras.layers.BatchNormalization()])
    first = model.layers[0]
    model.fit(x, y, batch_size=12, verbose=0, shuffle=False, validation_data=(x, y))
    kept = [weight.numpy() for weight in first.weights]
    scores = [model.evaluate(x, y, batch_size=12, verbose=0) for _ in range(2)]
    assert scores[0] == scores[1]
    first.trainable = False
    with strategy.scope():
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(x, y, batch_size=12, verbose=0, shuffle=False)
    require_equal_everywhere(strategy, [*model.weights, scores[0]])
    for weight, old in zip(first.weights, kept):
        np.testing.assert_array_equal(weight.numpy(), old)


def check_stateful_recurrent_layers_are_refused(strategy: Any) -> None:
    x, y = rows(12)
    try:
        with strategy.scope():
            model = keras.Sequential(
                [
                    keras.layers.Input(batch_shape=(12, 2, FEATURES)),
                    keras.layers.LSTM(3, stateful=True),
                    keras.layers.Dense(CLASSES),
                ]
            )
            model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        model.fit(np.repeat(x[:, None], 2, axis=1), y, batch_size=12, verbose=0)
    except ValueError as error:  # Keras 2 refuses when the layer is made
        assert ("has stateful=True" if KERAS3 else "Stateful RNNs") in str(error), error
    else:
        raise AssertionError("no error")
