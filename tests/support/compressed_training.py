"""A small training whose gradients are given, with any strategy, and its comparison with an oracle."""

from __future__ import annotations

from typing import Any, Callable, List

import numpy as np
import tensorflow as tf

__all__ = ["COLUMNS", "RATE", "ROWS", "STEPS", "Momentum", "Training", "follow"]

keras = tf.keras
KERAS3 = hasattr(keras, "ops")
ROWS, COLUMNS, STEPS, RATE = 40, 50, 12, 0.5


class Training:
    """A kernel [ROWS, COLUMNS] and a bias [COLUMNS], moved by plain SGD along gradients that each replica is given."""

    def __init__(self, strategy: Any, loss_scale: float = 0.0) -> None:
        self.strategy = strategy
        self.replicas = max(strategy.num_replicas_in_sync, strategy.size)
        with self.strategy.scope():
            self.model = keras.Sequential(
                [keras.layers.Input((ROWS,)), keras.layers.Dense(COLUMNS, kernel_initializer="zeros")]
            )
            self.optimizer = keras.optimizers.SGD(RATE)
            if loss_scale:
                kind = keras.optimizers if KERAS3 else keras.mixed_precision
                self.optimizer = kind.LossScaleOptimizer(
                    self.optimizer, initial_scale=loss_scale, dynamic_growth_steps=3
                )
            self.optimizer.build(self.model.trainable_variables)
        generator = np.random.default_rng(11)
        # Few values, and these powers of two, so that magnitudes tie and sums are exact.
        self.kernels = generator.integers(-64, 65, (STEPS, self.replicas, ROWS, COLUMNS)) / 64.0
        self.biases = generator.integers(-64, 65, (STEPS, self.replicas, COLUMNS)) / 64.0

        @tf.function
        def step(kernel: Any, bias: Any) -> None:
            def replica(kernel: tf.Tensor, bias: tf.Tensor) -> None:
                gradients = self._as_half([kernel, bias]) if loss_scale else [kernel, bias]
                self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables))

            self.strategy.run(replica, args=(kernel, bias))

        self._step = step

    def _as_half(self, gradients: List[tf.Tensor]) -> List[tf.Tensor]:
        """As a layer in float16 gives them for a scaled loss."""
        one = tf.constant(1.0)
        scale = self.optimizer.scale_loss(one) if KERAS3 else self.optimizer.get_scaled_loss(one)
        scaled = [tf.cast(tf.cast(each * scale, tf.float16), tf.float32) for each in gradients]
        return scaled if KERAS3 else self.optimizer.get_unscaled_gradients(scaled)

    def step(self, number: int) -> None:
        self._step(self._of_replicas(self.kernels[number]), self._of_replicas(self.biases[number]))

    def clear_slots(self) -> None:
        """SGD of tf_keras remembers its last update, NaN perhaps, and multiplies it by a momentum of 0."""
        listed = self.optimizer.variables
        for each in listed() if callable(listed) else listed:
            if len(each.shape):
                each.assign(tf.zeros_like(each))

    def of_workers(self, gradients: np.ndarray) -> List[np.ndarray]:
        """What each worker has, its replicas together."""
        return list(gradients.reshape(self.strategy.size, -1, *gradients.shape[1:]).sum(axis=1))

    def _number(self, context: Any) -> int:
        alone = context.num_replicas_in_sync == 1  # also where workers keep their own pace
        return self.strategy.rank if alone else context.replica_id_in_sync_group

    def _of_replicas(self, values: np.ndarray) -> Any:
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(values[self._number(context)], tf.float32)
        )


class Momentum:
    """The velocity of what goes uncompressed."""

    def __init__(self, momentum: float, nesterov: bool) -> None:
        self._momentum, self._nesterov, self._velocity = momentum, nesterov, np.zeros(COLUMNS)

    def __call__(self, gradient: np.ndarray) -> np.ndarray:
        if self._nesterov:
            self._velocity = self._momentum * (self._velocity + gradient)
            return self._velocity + gradient
        self._velocity = self._momentum * self._velocity + gradient
        return self._velocity.copy()


def follow(
    training: Training,
    oracle: Any,
    after: Callable[[np.ndarray], np.ndarray] = np.copy,
    clip_norm: float = np.inf,
) -> None:
    """Trains, and compares the weights after each step with what the oracle says; `after` tells how biases move."""
    kernel, bias = np.zeros((ROWS, COLUMNS)), np.zeros(COLUMNS)
    limit = clip_norm / np.sqrt(training.strategy.size)
    for number in range(STEPS):
        training.step(number)
        kernels = training.of_workers(training.kernels[number])
        biases = training.of_workers(training.biases[number])
        norms = [np.sqrt((one**2).sum() + (other**2).sum()) for one, other in zip(kernels, biases)]
        factors = [min(1.0, limit / norm) for norm in norms]
        assert clip_norm == np.inf or any(factor < 1 for factor in factors)
        kernel -= RATE * oracle.step([each * factor for each, factor in zip(kernels, factors)])
        bias -= RATE * after(sum(each * factor for each, factor in zip(biases, factors)))
        found = training.model.get_weights()
        np.testing.assert_allclose(found[0], kernel, rtol=0, atol=1e-4, err_msg=f"step {number}")
        np.testing.assert_allclose(found[1], bias, rtol=0, atol=1e-4, err_msg=f"step {number}")
