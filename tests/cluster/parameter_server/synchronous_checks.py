"""What SyncReplicasStrategy promises: checks of three workers with two servers."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, Callable

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.parameter_server.server_models import (
    CLASSES,
    LARGE_BYTES,
    STEPS,
    Partitioner,
    compiled,
    dense_model,
    numbers,
    own_data,
    scalar_loss,
    servers_of,
    word_model,
    words,
)
from tests.support.servers import wait_for_all

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1
KERAS3 = hasattr(keras, "ops")


def train_in_several_ways(model: Any, x: np.ndarray, y: np.ndarray) -> dict:
    """Takes STEPS + 4 steps. Batches do not divide by 3 workers; the last of an epoch has 2 rows. Returns the logs of `fit`."""
    batch, rows = 35, 35 * (STEPS // 2 - 1) + 2
    slower = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.7 * rate)  # each worker has one
    options = {"shuffle": False, "verbose": 0}
    batches = ((x[start : start + 7], y[start : start + 7]) for start in range(0, 70, 7))
    model.fit(batches, steps_per_epoch=2, **options)
    logs = model.fit(x[:rows], y[:rows], batch_size=batch, epochs=2, callbacks=[slower], **options).history
    for start in (0, 10):
        model.train_on_batch(x[start : start + 10], y[start : start + 10])
    return logs


def check_synchronous_training_equals_one_process(folder: Path) -> None:
    cut = tfs.ParameterServerOptions(partitioner=Partitioner(LARGE_BYTES, max_shards=2), timeout=30)
    averages = {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 5 if KERAS3 else None}
    constrained = {"kernel_constraint": "non_neg"} if KERAS3 else {}  # refused with Keras 2
    dense = functools.partial(dense_model, **constrained)
    for name, make, data, loss, options, arguments in (
        ("dense", dense, numbers, scalar_loss, tfs.ParameterServerOptions(timeout=30), averages),
        ("words", word_model, words, None, cut, {}),
    ):
        strategy = tfs.SyncReplicasStrategy(options=options)
        keras.utils.set_random_seed(7 + strategy.rank)
        with strategy.scope():
            model = compiled(make(), keras.optimizers.SGD(0.1, momentum=0.9, **arguments), loss)
        first = model.get_weights()
        wait_for_all(folder, f"{name} made", strategy.rank, strategy.size)
        x, y = data(36 * STEPS // 2)
        logs = train_in_several_ways(model, x, y)
        wait_for_all(folder, f"{name} trained", strategy.rank, strategy.size)
        assert int(model.optimizer.iterations.numpy()) == STEPS + 4
        counts = strategy.gradient_counts()
        assert counts.counted == (STEPS + 4,) * 3 and counts.dropped == (0,) * 3, counts
        with tf.distribute.OneDeviceStrategy("CPU:0").scope():
            plain = compiled(make(), keras.optimizers.SGD(0.1, momentum=0.9, **arguments), loss)
        plain.set_weights(first)
        expected = train_in_several_ways(plain, x, y)
        assert len(expected) >= 2
        for metric, values in expected.items():
            if strategy.rank and metric in ("lr", "learning_rate"):
                continue  # it may be that of the next epoch: the first worker sets it
            np.testing.assert_allclose(logs[metric], values, rtol=0, atol=1e-5, err_msg=metric)
        moved = 0.0
        for mine, alone, before in zip(model.get_weights(), plain.get_weights(), first):
            np.testing.assert_allclose(mine, alone, rtol=0, atol=1e-5, err_msg=name)
            moved = max(moved, float(np.abs(alone - before).max()))
        assert moved > 0.05, moved
        wait_for_all(folder, f"{name} compared", strategy.rank, strategy.size)
        strategy.close()


def check_sums_over_rows_and_means_of_metrics_equal_those_of_one_process(folder: Path) -> None:
    """The workers have 2, 2 and 3 rows of a batch, and all of them both rows of the last one."""
    x, y = numbers(16)

    def trained(model: Any) -> tuple:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
        model.compile(keras.optimizers.SGD(0.02), loss, metrics=[scalar_loss])
        options = {"shuffle": False, "verbose": 0, "validation_data": (x, y)}
        return model.fit(x, y, batch_size=7, epochs=2, **options).history, model.get_weights()

    strategy = tfs.SyncReplicasStrategy(options=tfs.ParameterServerOptions(timeout=30))
    with strategy.scope():
        model = dense_model()
        first = model.get_weights()
        wait_for_all(folder, "sums made", strategy.rank, strategy.size)
        logs, weights = trained(model)
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        plain = dense_model()
        plain.set_weights(first)
        expected, alone = trained(plain)
    assert set(expected) == {"loss", "scalar_loss", "val_loss", "val_scalar_loss"}, expected
    for metric, values in expected.items():
        np.testing.assert_allclose(logs[metric], values, rtol=1e-5, err_msg=metric)
    for mine, theirs in zip(weights, alone):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)
    wait_for_all(folder, "sums compared", strategy.rank, strategy.size)
    strategy.close()


class OwnStep(keras.Model):  # type: ignore[misc]
    """Returns the result of its metric beside another number."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = keras.layers.Dense(CLASSES, kernel_initializer="zeros")
        self.total = keras.metrics.Mean(name="total")

    @property
    def metrics(self) -> list:
        return [self.total]

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.layer(x)

    def train_step(self, data: tuple) -> dict:
        x, y = data
        with tf.GradientTape() as tape:
            loss = scalar_loss(y, self(x))
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
        self.total.update_state(loss)
        return {"total": self.total.result(), "two": 2.0}


def check_results_of_metrics_beside_other_numbers_are_those_of_one_process(folder: Path) -> None:
    x, y = numbers(14)
    strategy = tfs.SyncReplicasStrategy(options=tfs.ParameterServerOptions(timeout=30))
    logs = []
    for scope in (strategy.scope(), tf.distribute.OneDeviceStrategy("CPU:0").scope()):
        with scope:
            model = OwnStep()
            model.compile(keras.optimizers.SGD(0.1))
            found = model.fit(x, y, batch_size=7, epochs=2, shuffle=False, verbose=0).history
        logs.append(found)
        wait_for_all(folder, f"own step {len(logs)}", strategy.rank, strategy.size)
    assert set(logs[1]) == {"total", "two"} and logs[1]["total"][1] < logs[1]["total"][0], logs
    for name, values in logs[1].items():
        np.testing.assert_allclose(logs[0][name], values, rtol=1e-5, err_msg=name)
    strategy.close()


def check_rows_of_several_workers_train_as_those_of_one_process(folder: Path) -> None:
    """Each worker has a gradient for row 0 and one for a row of its own. Adagrad takes squares of rows."""
    strategy = tfs.SyncReplicasStrategy(options=tfs.ParameterServerOptions(timeout=30))

    def made() -> tuple:
        table = (keras.Variable if KERAS3 else tf.Variable)(np.ones([4, 2], "float32"), name="table")
        optimizer = keras.optimizers.Adagrad(0.5, initial_accumulator_value=0.0)
        optimizer.build([table])
        return table, optimizer

    def apply(table: Any, optimizer: Any, indices: list) -> None:
        values = tf.fill([len(indices), 2], 1 / 3)
        gradient = tf.IndexedSlices(values, tf.constant(indices), tf.constant([4, 2]))
        if KERAS3:
            optimizer.apply([gradient], [table])
        else:
            optimizer.apply_gradients([(gradient, table)])

    with strategy.scope():
        mine = made()
    tf.function(strategy.run)(lambda: apply(*mine, [0, 1 + strategy.rank]))
    wait_for_all(folder, "rows added", strategy.rank, strategy.size)
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        alone = made()
        tf.distribute.get_strategy().run(lambda: apply(*alone, [0, 1, 0, 2, 0, 3]))
    np.testing.assert_allclose(mine[0].numpy(), alone[0].numpy(), rtol=0, atol=1e-5)
    assert abs(alone[0].numpy()[1, 0] - 0.5) < 1e-5, alone[0].numpy()
    wait_for_all(folder, "rows seen", strategy.rank, strategy.size)
    strategy.close()


def check_normalization_and_validation_when_synchronous(folder: Path) -> None:
    strategy = tfs.SyncReplicasStrategy(options=tfs.ParameterServerOptions(timeout=30))
    keras.utils.set_random_seed(7)
    layers = [keras.layers.Input((8,)), keras.layers.Dense(16), keras.layers.BatchNormalization()]
    layers += [keras.layers.Dropout(0.1), keras.layers.Dense(CLASSES)]
    with strategy.scope():
        model = compiled(keras.Sequential(layers), keras.optimizers.Adam(0.02))
    x, y = numbers(480)
    history = model.fit(x, y, batch_size=48, epochs=3, verbose=0, validation_data=(x, y)).history
    wait_for_all(folder, "normalized", strategy.rank, strategy.size)
    assert history["val_loss"][2] < history["val_loss"][0]
    weights = wait_for_all(
        folder, "weights", strategy.rank, strategy.size, repr([w.tolist() for w in model.get_weights()])
    )
    assert set(weights) == {weights[0]}
    assert np.abs(model.layers[-3].moving_mean.numpy()).max() > 0.01
    strategy.close()


def check_moving_statistics_are_the_mean_of_the_workers(folder: Path) -> None:
    steps, rows, momentum = 6, 10, 0.8
    strategy = tfs.SyncReplicasStrategy(options=tfs.ParameterServerOptions(timeout=30))
    layers = [keras.layers.Input((8,)), keras.layers.BatchNormalization(momentum=momentum)]
    with strategy.scope():
        model = compiled(keras.Sequential([*layers, keras.layers.Dense(CLASSES)]), keras.optimizers.SGD(0.1))
    x, y = numbers(steps * rows * 3)
    x *= np.linspace(0.5, 3, len(x), dtype="float32")[:, None]
    x, y = x.reshape(3, steps, rows, 8), y.reshape(3, steps * rows)
    mine = x[strategy.rank].reshape(-1, 8), y[strategy.rank]
    model.fit(tf.data.Dataset.from_tensor_slices(mine).batch(rows).with_options(own_data()), verbose=0)
    wait_for_all(folder, "moved", strategy.rank, strategy.size)
    mean, variance = np.zeros(8), np.ones(8)
    for step in range(steps):
        mean += (1 - momentum) * (x[:, step].mean(axis=1).mean(axis=0) - mean)
        variance += (1 - momentum) * (x[:, step].var(axis=1).mean(axis=0) - variance)
    normalization = model.layers[-2]
    np.testing.assert_allclose(normalization.moving_mean.numpy(), mean, rtol=0, atol=1e-5)
    np.testing.assert_allclose(normalization.moving_variance.numpy(), variance, rtol=1e-5)
    assert np.abs(mean).max() > 0.05 and variance.max() > 2, (mean, variance)
    wait_for_all(folder, "moved alike", strategy.rank, strategy.size)
    strategy.close()


def check_another_model_is_an_error_that_names_both(folder: Path) -> None:
    strategy = tfs.SyncReplicasStrategy(options=tfs.ParameterServerOptions(timeout=30))
    rank = strategy.rank
    if rank != 1:
        with strategy.scope():
            dense_model()
    wait_for_all(folder, "models", rank, strategy.size)
    if rank == 1:
        error = ""
        try:
            with strategy.scope():
                keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(17)])
        except ValueError as found:
            error = str(found)
        for text in ("(8, 16)", "(8, 17)", "worker 1 ("):
            assert text in error, error
        assert "worker 0 (" in error or "worker 2 (" in error, error
    wait_for_all(folder, "refused", rank, strategy.size)
    strategy.close()


def check_what_servers_cannot_do_is_refused(folder: Path) -> None:
    strategy = tfs.SyncReplicasStrategy(options=tfs.ParameterServerOptions(timeout=30))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    accumulating = functools.partial(tfs.optimizers.SGD, 0.01, gradient_accumulation_steps=2)
    for make, compiling, text in (
        (functools.partial(keras.optimizers.Adam, 0.01, clipnorm=2.0), {}, "clipnorm=2.0"),
        (accumulating, {}, "gradient_accumulation_steps=2 of optimizer"),
        (keras.optimizers.Adam, {"jit_compile": True}, "jit_compile=True"),
    ):
        with strategy.scope():
            model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(CLASSES)])
            model.compile(make(), loss, **compiling)
        error = ""
        try:
            model.fit(*numbers(24), batch_size=12, verbose=0)
        except tfs.OptionsError as found:
            error = str(found)
        assert text in error, error
        if not compiling:
            model.evaluate(*numbers(24), batch_size=12, verbose=0)
    with strategy.scope():
        weight, optimizer = tf.Variable(1.0), accumulating()
    error = ""
    try:
        strategy.run(lambda: optimizer.apply_gradients([(tf.constant(1.0), weight)]))
    except tfs.OptionsError as found:
        error = str(found)
    assert "cannot be used with SyncReplicasStrategy" in error, error
    with strategy.scope():
        weight, kept, optimizer = (
            tf.Variable(1.0),
            tf.Variable(1.0, trainable=False),
            keras.optimizers.SGD(0.1),
        )
    error = ""
    try:
        strategy.run(lambda: optimizer.apply_gradients([(kept, weight)]))
    except tfs.OptionsError as found:
        error = str(found)
    assert "is kept in a variable on parameter servers" in error, error
    refuse_divided_sums(strategy)
    wait_for_all(folder, "refused all", strategy.rank, strategy.size)
    strategy.close()


def refuse_divided_sums(strategy: tfs.SyncReplicasStrategy) -> None:
    """Sums of gradients are refused also where a step divides them; other variables that a gradient depends on are not."""
    with strategy.scope():
        weight, optimizer = tf.Variable([1.0, 1.0]), keras.optimizers.SGD(0.1)
        kept, others = (tf.Variable([0.0, 0.0], trainable=False) for _ in range(2))
        optimizer.build([weight])

    def by_adding() -> tf.Tensor:
        kept.assign_add([1.0, 2.0])
        return tf.clip_by_value(kept / 2.0, -1.0, 1.0)

    def by_assigning() -> tf.Tensor:
        kept.assign(tf.add(kept, [1.0, 2.0]))
        return kept.read_value() * 0.5

    def of_a_teacher() -> tf.Tensor:
        others.assign(0.9 * others + 0.1 * weight)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((weight - tf.reduce_mean(others)) ** 2)
        return tape.gradient(loss, weight)

    def step(gradient: Callable[[], tf.Tensor], choose: bool) -> None:
        value = gradient()
        if choose:
            tf.cond(
                weight[0] > 5.0,
                lambda: optimizer.apply_gradients([(value, weight)]),
                lambda: optimizer.iterations,
            )
        else:
            optimizer.apply_gradients([(value, weight)])

    for gradient, choose in (
        (by_adding, False),
        (by_adding, True),
        (by_assigning, False),
        (of_a_teacher, False),
    ):
        error = ""
        try:
            trace = functools.partial(strategy.run, step, args=(gradient, choose))
            tf.function(lambda trace=trace: trace()).get_concrete_function()
        except tfs.OptionsError as found:
            error = str(found)
        assert ("is kept in a variable on parameter servers" in error) == (gradient is not of_a_teacher), (
            gradient,
            error,
        )


def check_other_models_made_before_do_no_harm_and_collectives_in_a_step_are_refused(folder: Path) -> None:
    strategy = tfs.SyncReplicasStrategy(options=tfs.ParameterServerOptions(timeout=30))
    if strategy.rank == 1:
        keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(3), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    normalization = keras.layers.BatchNormalization(synchronized=True)
    for number, layers in enumerate(([], [normalization])):
        with strategy.scope():
            model = keras.Sequential([keras.layers.Input((8,)), *layers, keras.layers.Dense(CLASSES)])
            model.compile(keras.optimizers.Adam(0.01), loss)
        error = ""
        try:
            model.fit(*numbers(24), batch_size=12, verbose=0)
        except NotImplementedError as found:
            error = str(found)
        assert int(model.optimizer.iterations.numpy()) == (0 if layers else 2)
        assert ("CollectiveAllReduceStrategy" in error) == bool(layers), error
        wait_for_all(folder, f"fitted {number}", strategy.rank, strategy.size)
    strategy.close()


def check_updates_see_what_others_before_them_have_written(folder: Path) -> None:
    """`follower` is on the other server than `leader`, whose update comes before, and than `count`, which replicas write."""
    strategy = tfs.SyncReplicasStrategy(
        options=tfs.ParameterServerOptions(timeout=30, placement="round_robin")
    )
    with strategy.scope():
        leader, follower = (tf.Variable(tf.zeros([4]), name=name) for name in ("leader", "follower"))
        count = tf.Variable(tf.zeros([4]), name="count", trainable=False)
    assert servers_of(leader) == servers_of(count) != servers_of(follower)

    @tf.function(autograph=False)
    def train(leads: bool) -> None:
        def update(strategy: tf.distribute.Strategy) -> None:
            gradient = tf.fill([4], 1 / strategy.num_replicas_in_sync)
            if leads:
                strategy.extended.update(
                    leader, lambda variable, value: variable.assign_add(value), (gradient,)
                )
            source = leader if leads else count
            strategy.extended.update(
                follower,
                lambda variable, value: variable.assign(value + 2 * source.read_value()),
                (gradient,),
            )

        def replica() -> None:
            count.assign_add(tf.ones([4]))
            tf.distribute.get_replica_context().merge_call(update)

        strategy.run(replica)

    for step in range(1, 7):
        leads = step > 3
        train(leads)
        assert set(count.numpy()) == {step}
        assert set(follower.numpy()) == {1 + 2 * (step - 3 if leads else step)}
        wait_for_all(folder, f"seen {step}", strategy.rank, strategy.size)
    assert set(leader.numpy()) == {3}
    strategy.close()
