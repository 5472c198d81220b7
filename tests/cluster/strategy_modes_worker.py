"""One of several workers that check layers and modes; each check prints "passed <name>".

python -m tests.cluster.strategy_modes_worker LOCAL_REPLICAS [CHECK ...]
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, Callable

import numpy as np
import tensorflow as tf

import tf_strategies as tfs

keras = importlib.import_module("tf_keras" if os.environ.get("TF_USE_LEGACY_KERAS") == "1" else "keras")
KERAS3 = keras.__version__.startswith("3.")
FEATURES, CLASSES = 4, 3
# Checks that trace many models run with one number of local replicas.
ONLY_WITH_REPLICAS = {
    "check_mixed_precision_trains_alike": 1,
    "check_a_custom_train_step": 1,
    "check_fit_evaluate_freeze_and_fit_again": 2,
    "check_run_eagerly_and_steps_per_execution_change_nothing": 2,
}


def rows(count: int, seed: int = 3) -> tuple:
    """x [count, FEATURES] and y [count], the same on all workers; means and spreads differ by column."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((count, FEATURES)) * np.arange(1, FEATURES + 1) + np.arange(FEATURES)
    return x.astype("float32"), generator.integers(0, CLASSES, count)


def make_model(scope: Any, layers: Callable[[], list], optimizer: Any = None, **compiled: Any) -> Any:
    """A Sequential model made in `scope`, whose weights depend on its shape alone."""
    keras.utils.set_random_seed(11)
    with scope:
        model = keras.Sequential([keras.layers.Input((FEATURES,)), *layers(), keras.layers.Dense(CLASSES)])
        model.compile(
            keras.optimizers.SGD(0.1, momentum=0.9) if optimizer is None else optimizer(),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            **compiled,
        )
    return model


def alone() -> Any:
    """The scope of one process: what the joint batch is compared with."""
    return tf.distribute.OneDeviceStrategy("CPU:0").scope()


def require_equal_everywhere(strategy: Any, numbers: Any) -> None:
    """The same bits on all workers, and on all replicas of this one where these are variables."""
    for each in numbers:
        variable = getattr(each, "value", each)
        if isinstance(variable, tf.Variable):
            first, *others = [np.asarray(part) for part in strategy.experimental_local_results(variable)]
            for other in others:
                np.testing.assert_array_equal(other, first, err_msg=variable.name)
    flat = np.concatenate([np.ravel(each.numpy() if hasattr(each, "numpy") else each) for each in numbers])
    gathered = strategy.gather(tf.constant(flat.astype("float64")[np.newaxis]), axis=0).numpy()
    assert np.isfinite(gathered).all(), gathered
    assert (gathered == gathered[0]).all(), gathered


def require_as_alone(strategy: Any, layers: Callable[[], list], optimizer: Any = None, **modes: Any) -> Any:
    """Trains with all replicas, and on the chief in one process with the joint batch: the same weights, the same bits."""
    fit = {"epochs": 2, "batch_size": 12, "shuffle": False, "verbose": 0, **modes.pop("fit", {})}
    x, y = rows(modes.pop("count", 36))
    model = make_model(strategy.scope(), layers, optimizer, **modes)
    model.fit(x, y, **fit)
    require_equal_everywhere(strategy, [*model.weights, *variables_of(model.optimizer)])
    if strategy.rank == 0:
        oracle = make_model(alone(), layers, optimizer, **modes)
        oracle.fit(x, y, **fit)
        for mine, expected in zip(model.get_weights(), oracle.get_weights()):
            np.testing.assert_allclose(mine, expected, rtol=0, atol=1e-5)
    return model


def variables_of(optimizer: Any) -> list:
    variables = optimizer.variables
    return list(variables() if callable(variables) else variables)


def calls(strategy: Any) -> int:
    return strategy.communication_stats().calls


# Batch normalization


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
        try:
            strategy.run(lambda: inner())
        except (NotImplementedError, RuntimeError) as error:
            assert "strategy.run" in str(error), error
        else:
            raise AssertionError("no error")


# Random layers


def check_random_layers_differ_on_every_replica(strategy: Any) -> None:
    ones = tf.ones([8, 4, 4, 1]) * tf.reshape(tf.range(16.0), [4, 4, 1])

    def drawn(in_graph: bool) -> list:
        keras.utils.set_random_seed(5)
        with strategy.scope():
            layers = [
                keras.layers.Dropout(0.5),
                keras.layers.Dropout(0.5, seed=3),
                keras.layers.GaussianNoise(1.0),
                keras.layers.RandomFlip(seed=4),
            ]

        def once() -> Any:
            return strategy.run(lambda: [layer(ones, training=True) for layer in layers])

        step = tf.function(once) if in_graph else once
        step()
        outputs = [strategy.gather(output, axis=0).numpy() for output in step()]
        if KERAS3:
            require_equal_everywhere(strategy, [state for layer in layers for state in layer.variables])
        return [np.split(output, strategy.num_replicas_in_sync) for output in outputs]

    for in_graph in (True, False):
        first, again = drawn(in_graph), drawn(in_graph)
        for parts, same in zip(first, again):
            np.testing.assert_array_equal(parts, same)
            for number, part in enumerate(parts):
                for other in parts[:number]:
                    assert (part != other).any()


# Mixed precision


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
    with strategy.scope():
        inner = keras.optimizers.SGD(0.5)
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


# Modes of fit


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
        try:
            step()
        except NotImplementedError as error:
            assert "inside tf.function(jit_compile=True)" in str(error)
        else:
            raise AssertionError("no error")

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


# Optimizers


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
        accumulating = [
            lambda: sgd(0.1, gradient_accumulation_steps=2, clipnorm=0.2),
            lambda: sgd(0.1, momentum=0.5, gradient_accumulation_steps=2),
        ]
        if len(strategy.extended.worker_devices) == 1:
            makers += accumulating
        else:
            try:
                require_joint_gradients(strategy, accumulating)
            except NotImplementedError as error:
                assert "needs one replica a worker" in str(error)
            else:
                raise AssertionError("no error")
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


# Custom steps and several models


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


def check_a_model_made_outside_the_scope(strategy: Any) -> None:
    model = make_model(tf.distribute.get_strategy().scope(), list)
    try:
        with strategy.scope():
            model.compile("sgd", "mse")
            model.fit(*rows(12), batch_size=12, verbose=0)
    except ValueError as error:
        assert "scope" in str(error), error
    else:
        raise AssertionError("no error")


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


def main(local: int, names: list) -> None:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    strategy = tfs.CollectiveAllReduceStrategy(devices=[f"CPU:{index}" for index in range(local)])
    for name, check in list(globals().items()):
        if name.startswith("check_") and (not names or name in names):
            if ONLY_WITH_REPLICAS.get(name, local) == local:
                check(strategy)
            print("passed", name, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
