"""A task of test_parameter_server.py: a server, or one of three workers that check what both strategies promise.

python -m tests.cluster.parameter_server_worker FOLDER
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.held_back import Between, stop
from tests.support.checks import run_checks
from tests.support.processes import wait_until
from tests.support.servers import wait_for_all, wait_for_one

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1

STEPS = 50
WORDS, WIDTH, LENGTH, CLASSES = 300, 8, 6, 5
LARGE_BYTES = 4 << 10
Partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner


class Recorder(keras.callbacks.Callback):
    """Keeps when each step of this worker ended, in monotonic seconds; before each it may sleep, and before all call `begin`."""

    def __init__(self, sleep: float = 0.0, begin: Any = None) -> None:
        super().__init__()
        self.ends: list = []
        self._sleep = sleep
        self._begin = begin

    def on_train_begin(self, logs: Any = None) -> None:
        if self._begin is not None:
            self._begin()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._sleep:
            time.sleep(self._sleep)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.ends.append(time.monotonic())


def numbers(count: int) -> tuple:
    """Rows of numbers with labels that can be learnt."""
    generator = np.random.default_rng(3)
    x = generator.standard_normal((count, 8)).astype("float32")
    return x, (x @ generator.standard_normal((8, CLASSES))).argmax(axis=1)


def words(count: int) -> tuple:
    """Rows of word numbers, some of them often, with labels that can be learnt."""
    generator = np.random.default_rng(4)
    x = (WORDS * generator.random((count, LENGTH)) ** 3).astype("int32")
    return x, generator.standard_normal((WORDS, CLASSES))[x].sum(axis=1).argmax(axis=1)


def own_data() -> tf.data.Options:
    """Of data that each worker has to itself."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return options


def dense_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.layers.Input((8,)),
            keras.layers.Dense(16, activation="tanh"),
            keras.layers.Dense(CLASSES),
        ]
    )


def word_model() -> keras.Model:
    return keras.Sequential(
        [
            keras.layers.Input((LENGTH,), dtype="int32"),
            keras.layers.Embedding(WORDS, WIDTH),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(CLASSES),
        ]
    )


def compiled(model: keras.Model, optimizer: Any) -> keras.Model:
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def servers_of(variable: Any) -> list:
    """The devices that hold the parts of a weight."""
    held = variable if hasattr(variable, "parts") else variable.value
    return [part.device for part in held.parts]


def check_backups_for_one_process_are_refused(folder: Path) -> None:
    strategy = tfs.AsyncParameterServerStrategy(options=tfs.ParameterServerOptions(timeout=30))
    with strategy.scope():
        model = compiled(dense_model(), keras.optimizers.SGD(0.02))
    x, y = numbers(96)
    try:
        model.fit(x, y, verbose=0, callbacks=[keras.callbacks.BackupAndRestore(str(folder / "backup"))])
    except tfs.OptionsError as error:
        assert "use tfs.callbacks.BackupAndRestore" in str(error)
    else:
        raise AssertionError("it was taken")


def check_asynchronous_workers_count_every_step(folder: Path) -> None:
    strategy = tfs.AsyncParameterServerStrategy(options=tfs.ParameterServerOptions(timeout=30))
    keras.utils.set_random_seed(strategy.rank)
    with strategy.scope():
        model = compiled(dense_model(), keras.optimizers.Adam(0.02))
    starts = wait_for_all(folder, "made", strategy.rank, strategy.size, repr(model.get_weights()))
    assert set(starts) == {starts[0]}
    x, y = numbers(960)
    recorder = Recorder()
    history = model.fit(x, y, batch_size=16, epochs=3, verbose=0, callbacks=[recorder]).history
    assert len(recorder.ends) == 60  # a third of 3 epochs with 60 batches
    assert history["loss"][-1] < history["loss"][0]
    wait_for_all(folder, "counted", strategy.rank, strategy.size)
    assert int(model.optimizer.iterations.numpy()) == 180
    stats = strategy.staleness_stats()
    assert stats.count == 180 == sum(stats.histogram)
    assert stats.mean == sum(value * count for value, count in enumerate(stats.histogram)) / 180
    assert stats.maximum == max(value for value, count in enumerate(stats.histogram) if count)
    _, accuracy = model.evaluate(x, y, batch_size=100, verbose=0)  # of all data, on each
    assert abs(accuracy - (model.predict(x, verbose=0).argmax(axis=1) == y).mean()) < 1e-6
    assert accuracy > 0.8
    assert model.predict(x[:7], verbose=0).shape == (7, CLASSES)
    wait_for_all(folder, "evaluated", strategy.rank, strategy.size)
    strategy.close()


def check_variables_are_balanced_and_slots_beside_them(folder: Path) -> None:
    options = tfs.ParameterServerOptions(partitioner=Partitioner(LARGE_BYTES, max_shards=2), timeout=30)
    strategy = tfs.AsyncParameterServerStrategy(options=options)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = compiled(word_model(), keras.optimizers.Adam(0.02))
    x, y = words(480)
    recorder = Recorder()
    model.fit(x, y, batch_size=16, epochs=2, verbose=0, callbacks=[recorder])
    table = model.layers[-3].embeddings
    devices = list(strategy.extended.parameter_devices)
    assert len(devices) == 2 and sorted(servers_of(table)) == devices
    moments = [each for each in variables_of(model.optimizer) if each.shape == table.shape]
    assert len(moments) == 2
    for moment in moments:
        assert servers_of(moment) == servers_of(table)
    sizes = dict.fromkeys(devices, 0)
    for weight in model.trainable_variables:
        held = weight if hasattr(weight, "parts") else weight.value
        for part in held.parts:
            sizes[part.device] += part.variable.shape.num_elements() * 4
    assert abs(sizes[devices[0]] - sizes[devices[1]]) <= WIDTH * CLASSES * 4 + 4 * CLASSES, sizes
    wait_for_all(folder, "cut", strategy.rank, strategy.size)
    assert int(model.optimizer.iterations.numpy()) == 60
    plain = word_model()
    plain.set_weights(model.get_weights())
    np.testing.assert_allclose(plain.predict(x, verbose=0), model.predict(x, verbose=0), atol=1e-5)
    if strategy.rank == 0:
        model.save(folder / "words.keras")
        again = keras.models.load_model(folder / "words.keras")
        assert type(again.distribute_strategy) is not type(strategy)
        for kept, weight in zip(again.get_weights(), model.get_weights()):
            np.testing.assert_array_equal(kept, weight)
    wait_for_all(folder, "saved", strategy.rank, strategy.size)
    strategy.close()


def variables_of(optimizer: Any) -> list:
    found = optimizer.variables
    return list(found() if callable(found) else found)


def check_a_bound_on_staleness_holds_fast_workers_back(folder: Path) -> None:
    bound, steps, sleep = 2, 30, 0.05
    strategy = tfs.AsyncParameterServerStrategy(
        max_staleness=bound, options=tfs.ParameterServerOptions(timeout=30)
    )
    slow = strategy.rank == 2
    with strategy.scope():
        model = compiled(dense_model(), keras.optimizers.SGD(0.05))
    x, y = numbers(3 * steps * 16)
    model.fit(x[:48], y[:48], batch_size=16, verbose=0)  # traces
    recorder = Recorder(
        sleep if slow else 0.0, lambda: wait_for_all(folder, "began", strategy.rank, strategy.size)
    )
    model.fit(x, y, batch_size=16, verbose=0, callbacks=[recorder])
    brought = wait_for_all(folder, "bounded", strategy.rank, strategy.size, json.dumps(recorder.ends))
    ends = [json.loads(text) for text in brought]
    assert [len(each) for each in ends] == [steps] * 3
    for rank in (0, 1):
        leads = [number - sum(end < mine for end in ends[2]) for number, mine in enumerate(ends[rank], 1)]
        # It may begin a step while `bound` ahead; the slow worker's callback may come a little after its step.
        assert max(leads) <= bound + 2, leads
        assert ends[rank][-1] - ends[rank][0] > (steps - bound - 4) * sleep
    strategy.close()


def check_variables_come_while_a_step_computes_and_gradients_go(folder: Path) -> None:
    """The server of the last layer stops until the step has computed with the first layer, and the step goes back to the first
    layer when another worker has seen what the gradient of the last one did."""
    wide = (256, 320)  # large enough for a channel
    last_server = int((folder / "ps1.pid").read_text())
    for transport in ("grpc", "tcp"):
        options = tfs.ParameterServerOptions(
            transport=transport, placement=lambda _, shape, *more: int(tuple(shape) == wide[::-1]), timeout=30
        )
        strategy = tfs.AsyncParameterServerStrategy(options=options)
        seen = folder / f"{transport}.seen"
        calls: list = []

        def forward(calls: list = calls) -> None:
            calls.append("forward")
            os.kill(last_server, signal.SIGCONT)

        def backward(calls: list = calls, seen: Path = seen) -> None:
            calls.append("backward")
            if calls.count("backward") == 2:
                wait_until(seen.exists, 10, "the gradient of the last layer")

        with strategy.scope():
            layers = [keras.layers.Dense(size, use_bias=False) for size in reversed(wide)]
            model = keras.Sequential(
                [keras.layers.Input(wide[:1]), layers[0], Between(forward, backward), layers[1]]
            )
            model.compile(keras.optimizers.SGD(0.1), "mse")
        first, last = (layer.kernel for layer in layers)
        assert servers_of(first) + servers_of(last) == list(strategy.extended.parameter_devices)
        rows = np.ones([4, wide[0]], np.float32), np.zeros([4, wide[0]], np.float32)
        data = tf.data.Dataset.from_tensors(rows).with_options(own_data())
        if strategy.rank == 0:
            model.fit(data, verbose=0)  # traces
        wait_for_all(folder, f"{transport} traced", strategy.rank, strategy.size)
        before = last.numpy()
        wait_for_all(folder, f"{transport} read", strategy.rank, strategy.size)
        if strategy.rank == 0:
            model.fit(data, verbose=0, callbacks=[Recorder(begin=lambda: stop(last_server))])
            assert calls == ["forward", "backward"] * 2, calls
        if strategy.rank == 1:
            wait_until(lambda last=last, before=before: (last.numpy() != before).any(), 20, "the gradient")
            seen.touch()
        wait_for_all(folder, f"{transport} overlapped", strategy.rank, strategy.size)
        strategy.close()


def check_damped_gradients_train(folder: Path) -> None:
    strategy = tfs.AsyncParameterServerStrategy(
        damping="divide", options=tfs.ParameterServerOptions(timeout=30)
    )
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = compiled(dense_model(), keras.optimizers.SGD(0.2))
    x, y = numbers(960)
    callback = tfs.callbacks.StalenessTensorBoard(folder / "logs")
    history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, callbacks=[callback]).history
    assert np.isfinite(history["loss"]).all() and history["loss"][1] < history["loss"][0]
    wait_for_all(folder, "damped", strategy.rank, strategy.size)
    if strategy.rank == 0:
        (events,) = (folder / "logs" / "staleness").glob("events*")
        records = tf.data.TFRecordDataset(str(events))
        tags = [value.tag for record in records for value in _event(record).summary.value]
        assert tags == ["staleness/mean", "staleness/maximum", "staleness/histogram"] * 2, tags
    strategy.close()


def check_the_first_server_divides_by_the_staleness(folder: Path) -> None:
    weights = trained_in_turn(folder, "divided", damping="divide")
    for mine, (first, gradient) in zip(weights, FORMULAS):
        expected = first.copy()
        for divisor in (1, 1, 2):
            expected -= RATE * gradient(first) / divisor
        np.testing.assert_allclose(mine, expected, rtol=1e-6)


def check_servers_compensate_for_the_delay(folder: Path) -> None:
    strength = 0.3
    weights = trained_in_turn(folder, "compensated", damping="compensate", compensation=strength)
    for mine, (first, gradient) in zip(weights, FORMULAS):
        expected, stale = first.copy(), gradient(first)
        for _ in range(3):
            expected -= RATE * (stale + strength * stale**2 * (expected - first))
        np.testing.assert_allclose(mine, expected, rtol=1e-5)
        assert np.abs(mine - (first - 3 * RATE * stale)).max() > 0.05


RATE = 0.25
TABLE = np.linspace(0.5, 2.0, 12, dtype="float32").reshape(6, 2)
ROWS = np.array([5, 1, 1])
COUNTS = np.bincount(ROWS, minlength=6).astype("float32")[:, None]
# (initial value, gradient at a value) of what is trained below: a dense variable, and one of which rows are read.
FORMULAS = [(TABLE, lambda w: w**2), (TABLE + 1, lambda w: COUNTS * w**2)]


def trained_in_turn(folder: Path, name: str, **arguments: Any) -> list:
    """Three workers read the same weights; then worker 1 updates them, then worker 2, then worker 0, one after the other.

    Returns:
        The values of a variable and of a table, both cut over the servers, at the end.
    """
    cut = tfs.ParameterServerOptions(partitioner=Partitioner(4, max_shards=2), timeout=30)
    strategy = tfs.AsyncParameterServerStrategy(options=cut, **arguments)
    rank = strategy.rank
    with strategy.scope():
        held = [tf.Variable(first) for first, _ in FORMULAS]
    assert all(len(variable.parts) == 2 for variable in held)

    def wait_for_turn(gradient: np.ndarray) -> np.ndarray:
        wait_for_all(folder, f"{name} read", rank, strategy.size)
        if rank != 1:
            wait_for_one(folder, f"{name} updated", {2: 1, 0: 2}[rank])
        return gradient

    def update(strategy: Any, gradients: list) -> None:
        for variable, gradient in zip(held, gradients):
            strategy.extended.update(
                variable, lambda v, g: minimize(v, g, RATE), args=(gradient,), group=False
            )

    def replica() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(held[0] ** 3) / 3 + tf.reduce_sum(tf.gather(held[1], ROWS) ** 3) / 3
        dense, rows = tape.gradient(loss, held)
        values = tf.numpy_function(wait_for_turn, [rows.values + 0 * tf.reduce_sum(dense)], tf.float32)
        values.set_shape(rows.values.shape)
        with tf.control_dependencies([values]):
            gradients = [tf.identity(dense), tf.IndexedSlices(values, rows.indices, rows.dense_shape)]
        tf.distribute.get_replica_context().merge_call(update, args=(gradients,))

    tf.function(lambda: strategy.run(replica))()
    wait_for_all(folder, f"{name} updated", rank, strategy.size)
    assert strategy.staleness_stats().histogram[:4] == (1, 1, 1, 0)
    weights = [variable.numpy() for variable in held]
    wait_for_all(folder, f"{name} compared", rank, strategy.size)
    strategy.close()
    return weights


def minimize(variable: Any, gradient: Any, rate: float) -> None:
    if isinstance(gradient, tf.IndexedSlices):
        change = tf.IndexedSlices(rate * gradient.values, gradient.indices, gradient.dense_shape)
        variable.scatter_sub(change)
    else:
        variable.assign(variable - rate * gradient)  # what other workers did before must not be lost


def check_training_ends_on_all_with_the_agreed_step(folder: Path) -> None:
    last, options = 40, tfs.ParameterServerOptions(timeout=30)
    x, y = numbers(480)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(12).repeat()
    for name, strategy, overshoot in (
        ("late", tfs.AsyncParameterServerStrategy(options=options), 1),
        ("bounded", tfs.AsyncParameterServerStrategy(max_staleness=1, options=options), 2),
        ("in step", tfs.SyncReplicasStrategy(options=options), 0),
    ):
        rank, size = strategy.rank, strategy.size
        with strategy.scope():
            model = compiled(dense_model(), keras.optimizers.SGD(0.05))
        if name == "late" and rank == 2:
            wait_for_one(folder, "late stopped", 0)
            wait_for_one(folder, "late stopped", 1)
        recorder, stop = Recorder(0.02 * rank), tfs.callbacks.StopAtStep(last)
        model.fit(data, steps_per_epoch=7, epochs=100, verbose=0, callbacks=[recorder, stop])
        ended = wait_for_all(folder, f"{name} stopped", rank, size, str(len(recorder.ends)))
        steps, batches = int(model.optimizer.iterations.numpy()), [int(text) for text in ended]
        assert last <= steps <= last + overshoot, steps
        if name == "in step":
            assert batches == [last] * 3, batches
        else:
            assert sum(batches) == steps and (batches[2] == 0) == (name == "late"), (batches, steps)
        wait_for_all(folder, f"{name} compared", rank, size)
        if name == "late":
            model.fit(data, steps_per_epoch=7, epochs=2, verbose=0)  # without the callback it goes on
            wait_for_all(folder, "went on", rank, size)
            assert int(model.optimizer.iterations.numpy()) == steps + 42
        wait_for_all(folder, f"{name} counted", rank, size)
        strategy.close()


def _event(record: tf.Tensor) -> Any:
    return tf.compat.v1.Event.FromString(record.numpy())


def check_synchronous_training_equals_one_process(folder: Path) -> None:
    cut = tfs.ParameterServerOptions(partitioner=Partitioner(LARGE_BYTES, max_shards=2), timeout=30)
    for name, make, data, options in (
        ("dense", dense_model, numbers, tfs.ParameterServerOptions(timeout=30)),
        ("words", word_model, words, cut),
    ):
        strategy = tfs.SyncReplicasStrategy(options=options)
        keras.utils.set_random_seed(7 + strategy.rank)
        with strategy.scope():
            model = compiled(make(), keras.optimizers.SGD(0.1, momentum=0.9))
        first = model.get_weights()
        wait_for_all(folder, f"{name} made", strategy.rank, strategy.size)
        x, y = data(36 * STEPS // 2)
        logs = model.fit(x, y, batch_size=36, epochs=2, shuffle=False, verbose=0).history
        wait_for_all(folder, f"{name} trained", strategy.rank, strategy.size)
        assert int(model.optimizer.iterations.numpy()) == STEPS
        counts = strategy.gradient_counts()
        assert counts.counted == (STEPS,) * 3 and counts.dropped == (0,) * 3, counts
        plain = compiled(make(), keras.optimizers.SGD(0.1, momentum=0.9))
        plain.set_weights(first)
        expected = plain.fit(x, y, batch_size=36, epochs=2, shuffle=False, verbose=0).history
        assert len(expected) == 2
        for metric, values in expected.items():
            np.testing.assert_allclose(logs[metric], values, rtol=0, atol=1e-5, err_msg=metric)
        moved = 0.0
        for mine, alone, before in zip(model.get_weights(), plain.get_weights(), first):
            np.testing.assert_allclose(mine, alone, rtol=0, atol=1e-5, err_msg=name)
            moved = max(moved, float(np.abs(alone - before).max()))
        assert moved > 0.05, moved
        wait_for_all(folder, f"{name} compared", strategy.rank, strategy.size)
        strategy.close()


def check_logs_of_an_epoch_count_what_others_have_done_in_it(folder: Path) -> None:
    strategy = tfs.AsyncParameterServerStrategy(options=tfs.ParameterServerOptions(timeout=30))
    with strategy.scope():
        model = compiled(dense_model(), keras.optimizers.SGD(0.0))
    x, y = numbers(3 * 48)
    if strategy.rank:
        wait_for_one(folder, "fitted", strategy.rank - 1)
    mine = slice(48 * strategy.rank, 48 * strategy.rank + 48)
    data = tf.data.Dataset.from_tensor_slices((x[mine], y[mine])).batch(16).with_options(own_data())
    logs = model.fit(data, epochs=2, verbose=0).history
    wait_for_all(folder, "fitted", strategy.rank, strategy.size)
    expected = model.evaluate(x[: mine.stop], y[: mine.stop], verbose=0, return_dict=True)
    for name in ("loss", "accuracy"):
        np.testing.assert_allclose(logs[name], [expected[name]] * 2, rtol=1e-5, err_msg=name)
    wait_for_all(folder, "evaluated", strategy.rank, strategy.size)
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


def check_replicas_are_numbered_and_draw_differently(folder: Path) -> None:
    drawn = {}
    for kind in (tfs.AsyncParameterServerStrategy, tfs.SyncReplicasStrategy):
        strategy = kind(options=tfs.ParameterServerOptions(timeout=30))
        with strategy.scope():
            dropout = keras.layers.Dropout(0.5, seed=11)

        def replica(dropout: Any = dropout) -> tuple:
            context = tf.distribute.get_replica_context()
            number = tf.cast(context.replica_id_in_sync_group, tf.int64)
            return number, context.num_replicas_in_sync, dropout(tf.ones([64]), training=True)

        for run in (strategy.run, tf.function(strategy.run)):
            number, count, dropped = run(replica)
            in_step = kind is tfs.SyncReplicasStrategy
            assert (int(number), int(count)) == ((strategy.rank, 3) if in_step else (0, 1))
        drawn[kind] = repr(dropped.numpy().tolist())
        brought = wait_for_all(folder, f"{kind.__name__} drew", strategy.rank, strategy.size, drawn[kind])
        assert len(set(brought)) == 3
        strategy.close()
    assert len(set(drawn.values())) == 1  # what a worker draws is a matter of its rank, not of the strategy


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


def check_another_argument_is_an_error_that_names_both(folder: Path) -> None:
    rank = tf.distribute.cluster_resolver.TFConfigClusterResolver().task_id
    if rank == 1:
        wait_for_one(folder, "joined", 0)
    error = ""
    try:
        options = tfs.ParameterServerOptions(timeout=30)
        strategy = tfs.AsyncParameterServerStrategy(max_staleness=2 if rank == 1 else 1, options=options)
        strategy.close()
    except tfs.BootstrapError as found:
        error = str(found)
    if rank == 1:
        for text in ("max_staleness=1", "max_staleness=2", "worker 1 ("):
            assert text in error, error
        assert "worker 0 (" in error or "worker 2 (" in error, error
    else:
        assert not error, error
    wait_for_all(folder, "joined", rank, 3)


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
    for arguments, compiling, text in (
        ({"clipnorm": 2.0}, {}, "clipnorm=2.0"),
        ({}, {"jit_compile": True}, "jit_compile=True"),
    ):
        with strategy.scope():
            model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(CLASSES)])
            model.compile(keras.optimizers.Adam(0.01, **arguments), loss, **compiling)
        error = ""
        try:
            model.fit(*numbers(24), batch_size=12, verbose=0)
        except tfs.OptionsError as found:
            error = str(found)
        assert text in error, error
        if arguments:
            model.evaluate(*numbers(24), batch_size=12, verbose=0)
    wait_for_all(folder, "refused all", strategy.rank, strategy.size)
    strategy.close()


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


def main(folder: Path) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    (folder / f"{task['type']}{task['index']}.pid").write_text(str(os.getpid()))
    first = tfs.AsyncParameterServerStrategy(options=tfs.ParameterServerOptions(timeout=30))
    run_checks(globals(), folder)
    first.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
