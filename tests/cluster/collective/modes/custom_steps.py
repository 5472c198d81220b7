"""Steps of a user's own, several models, layers with losses and states of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.collective.modes.models import CLASSES, FEATURES, KERAS3, alone, keras, rows
from tests.support.replicas import require_equal_everywhere


def check_a_custom_train_step(strategy: Any) -> None:
    class Model(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = keras.layers.Dense(CLASSES)
            self.normalize = keras.layers.BatchNormalization()

        def call(self, inputs: Any, training: bool = False) -> Any:
            return self.normalize(self.hidden(inputs), training=training)

        def train_step(self, data: Any) -> dict:
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
            self.optimizer.apply_gradients(
                zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
            )
            return {"loss": loss}

    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = Model()
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x, y = rows(36)
    history = model.fit(x, y, batch_size=12, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    require_equal_everywhere(strategy, model.weights)


class Logits(keras.Model):
    """A dense layer, for a `train_step` of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = keras.layers.Dense(CLASSES)

    def call(self, inputs: Any) -> Any:
        return self.logits(inputs)


def check_a_function_of_a_step_that_computes_gradients(strategy: Any) -> None:
    """Steps that were compiled later call it, with equal and unequal numbers of rows, in any order."""

    class Model(Logits):
        @tf.function
        def gradients(self, x: Any, y: Any) -> tuple:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, self(x)))
            return loss, tape.gradient(loss, self.trainable_variables)

        def train_step(self, data: Any) -> dict:
            loss, gradients = self.gradients(*data[:2])  # Keras 3 adds None for the weights of a single batch
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {"mean": loss}

    x, y = rows(41)
    equal = tf.data.Dataset.from_tensor_slices((x, y)).batch(12, drop_remainder=True).repeat()

    def one_by_one(model: Any) -> None:
        for count in (12, 11):
            model.train_on_batch(x[:count], y[:count])

    ways = (
        lambda model: model.fit(x, y, batch_size=12, epochs=2, shuffle=False, verbose=0),
        one_by_one,
        lambda model: model.fit(equal, steps_per_epoch=3, verbose=0),
    )

    def trained(strategy: Any, ways: Any) -> list:
        keras.utils.set_random_seed(4)
        with strategy.scope():
            model = Model()
            model.build((None, FEATURES))
        for train in ways:
            with strategy.scope():
                model.compile(keras.optimizers.SGD(0.1, momentum=0.9))
            train(model)
        return model.get_weights()

    for order in (ways, ways[::-1]):
        found = trained(strategy, order)
        require_equal_everywhere(strategy, found)
        for mine, expected in zip(found, trained(tf.distribute.OneDeviceStrategy("CPU:0"), order)):
            np.testing.assert_allclose(mine, expected, atol=1e-5)


def check_functions_of_one_name_that_later_share_a_step(strategy: Any) -> None:
    """Two parts train alone first, and then in one step, which calls the functions that were compiled before, one twice."""

    class Part(Logits):
        @tf.function
        def gradients(self, x: Any, y: Any) -> list:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, self(x)))
            return tape.gradient(loss, self.trainable_variables)

        def train_step(self, data: Any) -> dict:
            gradients = self.gradients(*data[:2])
            self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
            return {"mean": tf.zeros([])}

    class Both(keras.Model):
        def __init__(self, parts: list) -> None:
            super().__init__()
            self.parts = parts

        def call(self, inputs: Any) -> Any:
            return [part(inputs) for part in self.parts]

        def train_step(self, data: Any) -> dict:
            found = [(part.gradients(*data[:2]), part.trainable_variables) for part in self.parts]
            found.append((self.parts[0].gradients(-data[0], data[1]), found[0][1]))
            sums: dict = {}
            for gradients, variables in found:
                for gradient, variable in zip(gradients, variables):
                    sums.setdefault(id(variable), []).append((gradient, variable))
            pairs = [(tf.add_n([gradient for gradient, _ in each]), each[0][1]) for each in sums.values()]
            self.optimizer.apply_gradients(pairs)
            return {"mean": tf.zeros([])}

    x, y = rows(48)

    def trained(strategy: Any) -> list:
        keras.utils.set_random_seed(4)
        with strategy.scope():
            parts = [Part(), Part()]
            for part in parts:
                part.build((None, FEATURES))
                part.compile(keras.optimizers.SGD(0.1, momentum=0.9))
        for index, part in enumerate(parts):
            part.fit(x[index::2], y[index::2], batch_size=12, shuffle=False, verbose=0)
        with strategy.scope():
            both = Both(parts)
            both.build((None, FEATURES))
            both.compile(keras.optimizers.SGD(0.1, momentum=0.9))
        both.fit(x, y, batch_size=12, epochs=2, shuffle=False, verbose=0)
        return both.get_weights()

    found = trained(strategy)
    require_equal_everywhere(strategy, found)
    for mine, expected in zip(found, trained(tf.distribute.OneDeviceStrategy("CPU:0"))):
        np.testing.assert_allclose(mine, expected, atol=1e-5)


def check_steps_that_divide_by_the_global_batch(strategy: Any) -> None:
    """They are refused, and train exactly with the strategy that is told so."""
    devices = [f"CPU:{index}" for index in range(len(strategy.extended.worker_devices))]
    sums = tfs.CollectiveAllReduceStrategy(devices=devices, step_losses="sum")

    class Model(Logits):
        def train_step(self, data: Any) -> dict:
            x, y = data
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, self(x))
                loss = tf.nn.compute_average_loss(losses, global_batch_size=12)
            variables = self.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            return {"loss": loss}

    def trained(scope: Any) -> Any:
        keras.utils.set_random_seed(4)
        x, y = rows(41)
        with scope:
            model = Model()
            model.build((None, FEATURES))
            model.compile(keras.optimizers.SGD(0.1, momentum=0.9))
        model.fit(x, y, batch_size=12, epochs=2, shuffle=False, verbose=0)
        return model

    try:
        trained(strategy.scope())
    except tfs.OptionsError as error:
        assert "global_batch_size=12" in str(error) and 'step_losses="sum"' in str(error), error
    else:
        raise AssertionError("no error")
    model = trained(sums.scope())
    require_equal_everywhere(strategy, model.weights)
    if strategy.rank == 0:
        for mine, expected in zip(model.get_weights(), trained(alone()).get_weights()):
            np.testing.assert_allclose(mine, expected, rtol=0, atol=1e-5)
    sums.close()


def check_two_models_in_one_step_given_as_a_function(strategy: Any) -> None:
    """As a GAN is trained: two optimizers, and a tf.function handed to run, with a condition on a tensor in it."""
    keras.utils.set_random_seed(2)
    with strategy.scope():
        first, second = keras.layers.Dense(FEATURES), keras.layers.Dense(1)
        first.build((None, FEATURES))
        second.build((None, FEATURES))
        optimizers = [keras.optimizers.SGD(0.1), keras.optimizers.Adam(0.1)]
    x = tf.reshape(tf.cast(tf.range(12 * FEATURES), tf.float32), [12, FEATURES]) / 50.0

    @tf.function
    def step(batch: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape(persistent=True) as tape:
            score = tf.reduce_mean(second(first(batch)))
            if score > 1000.0:
                score = score * 2.0
        for optimizer, layer, sign in zip(optimizers, (first, second), (1.0, -1.0)):
            grads = [sign * grad for grad in tape.gradient(score, layer.trainable_variables)]
            optimizer.apply_gradients(zip(grads, layer.trainable_variables))
        return score

    dataset = strategy.experimental_distribute_dataset(
        tf.data.Dataset.from_tensor_slices(x).batch(12).repeat(3)
    )
    before = [weight.numpy() for layer in (first, second) for weight in layer.trainable_variables]
    for batch in dataset:
        strategy.run(step, args=(batch,))
    weights = [weight for layer in (first, second) for weight in layer.trainable_variables]
    require_equal_everywhere(strategy, weights)
    assert all((weight.numpy() != old).any() for weight, old in zip(weights, before))


def check_layers_with_losses_weights_and_outputs_of_their_own(strategy: Any) -> None:
    class Watching(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            if KERAS3:
                self.seen = keras.Variable(0.0, trainable=False, synchronization="on_read", aggregation="sum")
            else:
                self.seen = self.add_weight(
                    name="seen",
                    shape=(),
                    initializer="zeros",
                    trainable=False,
                    synchronization=tf.VariableSynchronization.ON_READ,
                    aggregation=tf.VariableAggregation.SUM,
                )
            self.mean = self.add_weight(name="mean", shape=(), initializer="zeros", trainable=False)

        def call(self, inputs: Any, training: bool = False) -> Any:
            if training:
                self.seen.assign(self.seen + tf.cast(tf.shape(inputs)[0], tf.float32))
                self.mean.assign(tf.reduce_mean(inputs))
            self.add_loss(0.01 * tf.reduce_mean(tf.square(inputs)))
            return inputs

    x, y = rows(24)
    keras.utils.set_random_seed(3)
    with strategy.scope():
        inputs = keras.layers.Input((FEATURES,))
        watching = Watching()
        hidden = keras.layers.Dense(4)(watching(inputs))
        model = keras.Model(inputs, [keras.layers.Dense(CLASSES)(hidden), keras.layers.Dense(1)(hidden)])
        model.compile(
            "sgd",
            [keras.losses.SparseCategoricalCrossentropy(from_logits=True), "mse"],
            loss_weights=[1.0, 0.5],
        )
    targets = (y, x[:, :1])
    model.fit(x, targets, batch_size=12, shuffle=False, verbose=0)
    total = watching.seen.value if KERAS3 else watching.seen
    assert float(strategy.reduce("SUM", total, axis=None)) == 24.0
    np.testing.assert_allclose(watching.mean.numpy(), x[12:].mean(), rtol=1e-5)
    require_equal_everywhere(strategy, [*model.trainable_weights, watching.mean])
