"""What AsyncParameterServerStrategy promises: checks of three workers with two servers."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.parameter_server.held_back import Between, stop
from tests.cluster.parameter_server.server_models import (
    CLASSES,
    Partitioner,
    Recorder,
    compiled,
    dense_model,
    numbers,
    own_data,
    servers_of,
)
from tests.support.processes import wait_until
from tests.support.servers import wait_for_all, wait_for_one

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1

RATE = 0.25
TABLE = np.linspace(0.5, 2.0, 12, dtype="float32").reshape(6, 2)
ROWS = np.array([5, 1, 1])
COUNTS = np.bincount(ROWS, minlength=6).astype("float32")[:, None]
# (initial value, gradient at a value) of what is trained below: a dense variable, and one of which rows are read.
FORMULAS = [(TABLE, lambda w: w**2), (TABLE + 1, lambda w: COUNTS * w**2)]


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


def check_fewer_batches_than_workers_are_refused_on_all(folder: Path) -> None:
    strategy = tfs.AsyncParameterServerStrategy(options=tfs.ParameterServerOptions(timeout=30))
    with strategy.scope():
        model = compiled(dense_model(), keras.optimizers.SGD(0.02))
    x, y = numbers(32)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
    for given, options in (((data,), {}), ((x, y), {"batch_size": 16})):
        error = ""
        try:
            model.fit(*given, epochs=2, verbose=0, **options)
        except ValueError as found:
            error = str(found)
        assert "has 2 batches, which cannot be dealt out to 3 workers" in error, error
    model.fit(data.with_options(own_data()), validation_data=data, verbose=0)
    wait_for_all(folder, "few batches", strategy.rank, strategy.size)
    assert int(model.optimizer.iterations.numpy()) == 6
    wait_for_all(folder, "few counted", strategy.rank, strategy.size)
    strategy.close()


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


def _event(record: tf.Tensor) -> Any:
    return tf.compat.v1.Event.FromString(record.numpy())


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
