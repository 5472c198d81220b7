"""Every optimizer is given the gradient of the joint batch, whatever it does with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.collective.modes.models import KERAS3, alone, keras, variables_of
from tests.support.replicas import require_equal_everywhere
from tf_strategies.keras.accumulation import is_possible


def check_optimizers_see_the_gradient_of_the_joint_batch(strategy: Any) -> None:
    sgd = keras.optimizers.SGD
    makers = [
        lambda: sgd(0.1, global_clipnorm=0.3),
        lambda: sgd(0.1, momentum=0.9, clipnorm=0.1),
        lambda: sgd(0.1, clipvalue=0.05),
        lambda: sgd(0.1, weight_decay=0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2),
        lambda: keras.optimizers.AdamW(0.05, weight_decay=0.1, global_clipnorm=0.3),
        lambda: keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.05, 2, 0.5)),
    ]
    if KERAS3:
        makers.append(
            lambda: keras.optimizers.LossScaleOptimizer(sgd(0.1, global_clipnorm=0.3), initial_scale=64.0)
        )
    kind = sgd if KERAS3 else tfs.optimizers.SGD
    accumulating = [
        lambda: kind(0.1, gradient_accumulation_steps=2, clipnorm=0.2),
        lambda: kind(0.1, momentum=0.5, weight_decay=0.1, gradient_accumulation_steps=2),
        lambda: kind(
            0.1, gradient_accumulation_steps=2, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=2
        ),
    ]
    if not KERAS3:
        accumulating.append(lambda: keras.mixed_precision.LossScaleOptimizer(accumulating[1]()))
    if len(strategy.extended.worker_devices) == 1 or not KERAS3 or is_possible(keras):
        makers += accumulating
    else:
        with pytest.raises(NotImplementedError, match="needs one replica a worker with Keras"):
            require_joint_gradients(strategy, accumulating)
    require_joint_gradients(strategy, makers)


def require_joint_gradients(strategy: Any, makers: list) -> None:
    """Takes four steps with every optimizer on all replicas, and alone with the sums of their gradients."""
    replicas, starts = strategy.num_replicas_in_sync, ([1.0, -2.0, 3.0], [0.5, 0.25])
    gradients = np.random.default_rng(7).standard_normal((4, replicas, 5)).astype("float32")

    def made() -> tuple:
        variable = keras.Variable if KERAS3 else tf.Variable
        optimizers, weights = (
            [maker() for maker in makers],
            [[variable(start) for start in starts] for _ in makers],
        )
        for optimizer, each in zip(optimizers, weights):
            optimizer.build(each)
        return optimizers, weights

    def apply(optimizers: list, weights: list, gradient: Any) -> None:
        for optimizer, each in zip(optimizers, weights):
            scaled = gradient * optimizer.scale_loss(1.0) if KERAS3 else gradient
            optimizer.apply_gradients(zip([scaled[:3], scaled[3:]], each))

    with strategy.scope():
        mine = made()
    step = tf.function(lambda value: strategy.run(lambda part: apply(*mine, part), args=(value,)))
    with alone():
        oracle = made()
    for gradient in gradients:
        step(
            strategy.experimental_distribute_values_from_function(
                lambda context: tf.constant(gradient[context.replica_id_in_sync_group])
            )
        )
        apply(*oracle, tf.constant(gradient.sum(axis=0)))
    for optimizer, weights, alike in zip(mine[0], mine[1], oracle[1]):
        require_equal_everywhere(strategy, [*weights, *variables_of(optimizer)])
        for weight, expected in zip(weights, alike):
            message = str(optimizer.get_config())
            np.testing.assert_allclose(weight.numpy(), expected.numpy(), atol=1e-5, err_msg=message)
