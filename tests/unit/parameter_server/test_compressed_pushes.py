"""Compression in the parameter-server strategies, in one process: what travels together, and what is remembered of it."""

from __future__ import annotations

from typing import Any, Callable, List

import numpy as np
import pytest
import tensorflow as tf

import tf_strategies as tfs
from tf_strategies import compression

keras = tf.keras
KINDS = [tfs.AsyncParameterServerStrategy, tfs.SyncReplicasStrategy]


def variables_of(strategy: Any, *shapes: List[int], dtype: Any = tf.float32) -> List[Any]:
    with strategy.scope():
        return [tf.Variable(tf.zeros(shape, dtype), name=f"v{number}") for number, shape in enumerate(shapes)]


def apply(strategy: Any, pairs: List[tuple]) -> None:
    """In a replica: subtracts from each variable its gradient, all in one merge_call."""

    def merged(distribution: Any, *gradients: Any) -> None:
        for (variable, _), gradient in zip(pairs, gradients):
            distribution.extended.update(
                variable, lambda v, g: v.assign_sub(tf.cast(g, v.dtype)), args=(gradient,)
            )

    tf.distribute.get_replica_context().merge_call(merged, args=tuple(gradient for _, gradient in pairs))


def in_steps(strategy: Any, replica: Callable[[], None], steps: int, eager: bool) -> None:
    run = (lambda: strategy.run(replica)) if eager else tf.function(lambda: strategy.run(replica))
    for _ in range(steps):
        run()


def exchanges(strategy: Any) -> int:
    return int(strategy._compressed._compression.step.numpy())


@pytest.mark.parametrize("eager", [False, True])
def test_what_a_branch_applies_travels_together(eager: bool) -> None:
    deep = compression.DeepGradientCompression(1.0, momentum=0.0, clip_norm=1.0, min_elements=0)
    strategy = tfs.AsyncParameterServerStrategy(compression=deep)
    variables = variables_of(strategy, [2, 2], [2, 3])
    gradients = [tf.fill([2, 2], 3.0), tf.fill([2, 3], 2.0)]
    norm = np.sqrt(4 * 9.0 + 6 * 4.0)

    def replica() -> None:
        tf.cond(
            tf.greater(tf.reduce_sum(gradients[0]), 0.0),
            lambda: apply(strategy, list(zip(variables, gradients))),
            lambda: None,
        )

    in_steps(strategy, replica, 3, eager)
    for variable, gradient in zip(variables, gradients):
        np.testing.assert_allclose(variable.numpy(), -3 * gradient.numpy() / norm, rtol=1e-5)
    assert exchanges(strategy) == 3


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_two_optimizers_of_one_variable_lose_nothing(kind: Any, eager: bool) -> None:
    strategy = kind(compression=compression.TopK(0.25, min_elements=0))
    (variable,) = variables_of(strategy, [2, 2])
    gradient = tf.constant([[4.0, 3.0], [2.0, 1.0]])

    def replica() -> None:
        apply(strategy, [(variable, gradient)])
        apply(strategy, [(variable, gradient)])

    in_steps(strategy, replica, 1, eager)
    # Sent are 4 and what 3 has become with what was left of it.
    np.testing.assert_array_equal(-variable.numpy(), [[4.0, 6.0], [0.0, 0.0]])
    assert exchanges(strategy) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_two_gradients_of_one_variable_in_one_exchange_are_refused(kind: Any) -> None:
    strategy = kind(compression=compression.TopK(0.25, min_elements=0))
    (variable,) = variables_of(strategy, [2, 2])
    with pytest.raises(ValueError, match=r"variable '.*v0.*' has two gradients in one step: add them up"):
        strategy.run(lambda: apply(strategy, [(variable, tf.ones([2, 2]))] * 2))


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_that_are_no_gradients_go_as_they_are(kind: Any) -> None:
    strategy = kind(compression=compression.TopK(0.25, min_elements=0))
    (variable,) = variables_of(strategy, [2, 2])

    def merged(distribution: Any, rate: Any) -> None:
        distribution.extended.update(variable, lambda v, x: v.assign_add(tf.fill([2, 2], x)), args=(rate,))

    @tf.function
    def step() -> None:
        strategy.run(lambda: tf.distribute.get_replica_context().merge_call(merged, args=(tf.constant(3.0),)))

    step()
    np.testing.assert_array_equal(variable.numpy(), np.full((2, 2), 3.0))


def test_a_schedule_may_read_what_servers_hold() -> None:
    strategy = tfs.AsyncParameterServerStrategy(
        compression=compression.TopK(lambda step: 0.25 + 0.0 * tf.reduce_sum(kept[0]), min_elements=0)
    )
    kept = variables_of(strategy, [2, 2])
    gradient = tf.constant([[4.0, 3.0], [2.0, 1.0]])
    in_steps(strategy, lambda: apply(strategy, [(kept[0], gradient)]), 1, eager=False)
    np.testing.assert_array_equal(-kept[0].numpy(), [[4.0, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize(
    "compressor",
    [
        compression.TopK(0.25, min_elements=0),
        compression.RandomK(0.25, min_elements=0),
        compression.SignSGD(min_elements=0),
        compression.DeepGradientCompression(0.25, min_elements=0),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_float32_cannot_hold_leaves_no_trace(kind: Any, compressor: Any) -> None:
    strategy = kind(compression=compressor)
    (variable,) = variables_of(strategy, [2, 2], dtype=tf.float64)
    gradient = tf.Variable([[4.0, 3.0], [2.0, 1.0]], dtype=tf.float64, trainable=False)

    @tf.function
    def step(gradient: Any) -> None:
        strategy.run(lambda: apply(strategy, [(variable, gradient)]))

    step(gradient * 1e200)
    assert np.isnan(variable.numpy()).all()
    variable.assign(tf.zeros([2, 2], tf.float64))
    for _ in range(8):
        step(gradient)
    assert np.isfinite(variable.numpy()).all() and np.abs(variable.numpy()).max() > 1


def test_what_overflows_with_what_was_kept_does_not_stay() -> None:
    huge = np.full((2, 2), 3e38, np.float32)
    for compressor in (
        compression.TopK(0.25, min_elements=0),
        compression.RandomK(0.25, min_elements=0),
        compression.Quantize8(error_feedback=True, min_elements=0),
    ):
        strategy = tfs.AsyncParameterServerStrategy(compression=compressor)
        (variable,) = variables_of(strategy, [2, 2])
        in_steps(strategy, lambda: apply(strategy, [(variable, tf.constant(huge))]), 3, eager=False)
        kept = strategy._compressed._compression.slots(variable, variable.parts[0].variable)["residual"]
        assert np.isfinite(kept.numpy()).all(), compressor


@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_scale_sees_what_half_precision_cannot_hold(kind: Any) -> None:
    """1e5 is finite in float32, and infinite in float16."""
    strategy = kind(compression=compression.Half())
    keras3 = hasattr(keras, "ops")
    with strategy.scope():
        weight = (keras.Variable if keras3 else tf.Variable)(np.ones((2, 2), "float32"))
        scaling = (keras.optimizers if keras3 else keras.mixed_precision).LossScaleOptimizer
        optimizer = scaling(keras.optimizers.SGD(1.0), initial_scale=16.0, dynamic_growth_steps=100)
        optimizer.build([weight])

    @tf.function
    def step(gradient: Any) -> None:
        def replica(gradient: Any) -> None:
            one = tf.constant(1.0)
            scale = optimizer.scale_loss(one) if keras3 else optimizer.get_scaled_loss(one)
            gradients = [gradient * scale]
            if not keras3:
                gradients = optimizer.get_unscaled_gradients(gradients)
            optimizer.apply_gradients(zip(gradients, [weight]))

        strategy.run(replica, (gradient,))

    for gradient, weights, scale in ((0.25, 0.75, 16.0), (1e5, 0.75, 8.0), (0.25, 0.5, 8.0)):
        step(tf.fill([2, 2], gradient))
        np.testing.assert_array_equal(weight.numpy(), np.full((2, 2), weights))
        assert float(optimizer.dynamic_scale.numpy() if keras3 else optimizer.loss_scale) == scale
