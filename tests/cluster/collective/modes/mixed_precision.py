"""Half precision, and what becomes of a step whose gradients overflow on one worker."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.cluster.collective.modes.models import KERAS3, alone, keras, make_model, rows, variables_of
from tests.support.replicas import require_equal_everywhere


def check_mixed_precision_trains_alike(strategy: Any) -> None:
    x, y = rows(36)
    for policy in ("mixed_bfloat16", "mixed_float16"):
        keras.mixed_precision.set_global_policy(policy)
        try:
            model = make_model(strategy.scope(), lambda: [keras.layers.Dense(8, activation="relu")])
            model.fit(x, y, batch_size=12, epochs=2, verbose=0, shuffle=False)
            require_equal_everywhere(strategy, [*model.weights, *variables_of(model.optimizer)])
            if strategy.rank == 0:
                oracle = make_model(alone(), lambda: [keras.layers.Dense(8, activation="relu")])
                oracle.fit(x, y, batch_size=12, epochs=2, verbose=0, shuffle=False)
                for mine, expected in zip(model.get_weights(), oracle.get_weights()):
                    np.testing.assert_allclose(mine, expected, atol=0.05)
        finally:
            keras.mixed_precision.set_global_policy("float32")


def check_an_overflow_on_one_worker_skips_the_step_on_all(strategy: Any) -> None:
    kinds = [keras.optimizers.SGD] if KERAS3 else [keras.optimizers.SGD, keras.optimizers.legacy.SGD]
    for kind in kinds:
        _overflow_on_the_last_replica(strategy, kind)


def _overflow_on_the_last_replica(strategy: Any, kind: type) -> None:
    with strategy.scope():
        inner = kind(0.5)
        optimizer = (
            keras.optimizers.LossScaleOptimizer(inner, initial_scale=8.0, dynamic_growth_steps=2)
            if KERAS3
            else keras.mixed_precision.LossScaleOptimizer(inner, initial_scale=8.0, dynamic_growth_steps=2)
        )
        weight = keras.Variable(1.0) if KERAS3 else tf.Variable(1.0)

    @tf.function
    def step(value: Any) -> Any:
        def replica(gradient: tf.Tensor) -> None:
            if KERAS3:
                optimizer.apply([gradient * optimizer.scale_loss(1.0)], [weight])
            else:
                scaled = gradient * optimizer.get_scaled_loss(tf.constant(1.0))
                optimizer.apply_gradients(zip(optimizer.get_unscaled_gradients([scaled]), [weight]))

        strategy.run(replica, args=(value,))

    def scale() -> float:
        return float(optimizer.dynamic_scale.numpy() if KERAS3 else optimizer.loss_scale)

    last = strategy.num_replicas_in_sync - 1
    expected, seen = 1.0, []
    for bad in (None, np.inf, np.nan, None, None, None):
        value = strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(
                1.0 if bad is None or context.replica_id_in_sync_group != last else bad, tf.float32
            )
        )
        step(value)
        expected -= 0.5 * (last + 1) if bad is None else 0.0
        assert float(weight.numpy()) == expected, (float(weight.numpy()), expected, bad)
        seen.append(scale())
        require_equal_everywhere(strategy, [weight, [scale()]])
    assert seen == [8.0, 4.0, 2.0, 2.0, 4.0, 4.0], seen
