"""The parameter-server strategies in one process, which is worker and server at once: training, and what is refused."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402
from tests.support.partitions import thirds  # noqa: E402
from tf_strategies.cluster import Cluster  # noqa: E402

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1

ROWS, WIDTH = 7, 2
# --- Keras ---


def model_of(layers: list, optimizer) -> keras.Model:
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def word_layers() -> list:
    return [
        keras.layers.Input((4,), dtype="int32"),
        keras.layers.Embedding(20, 6),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(3),
    ]


@pytest.mark.keras
@pytest.mark.smoke
@pytest.mark.parametrize("kind", ["async", "sync"])
@pytest.mark.parametrize("make", ["momentum", "adam", "averages"])
def test_one_process_trains_as_plain_keras_does(kind, make, tmp_path: Path) -> None:
    def optimizer():
        if make == "adam":
            return keras.optimizers.Adam(0.01)
        if make == "averages":
            every = 7 if hasattr(keras, "ops") or kind == "async" else None
            return keras.optimizers.SGD(
                0.1, momentum=0.9, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=every
            )
        return keras.optimizers.SGD(0.1, momentum=0.9)

    options = tfs.ParameterServerOptions(partitioner=thirds)
    kinds = {"async": tfs.AsyncParameterServerStrategy, "sync": tfs.SyncReplicasStrategy}
    strategy = kinds[kind](options=options)
    with strategy.scope():
        mine = model_of(word_layers(), optimizer())
    plain = model_of(word_layers(), optimizer())
    plain.set_weights(mine.get_weights())
    generator = np.random.default_rng(2)
    x, y = generator.integers(0, 20, (96, 4)).astype("int32"), generator.integers(0, 3, 96)
    logs = [
        model.fit(x, y, batch_size=12, epochs=6, shuffle=False, verbose=0).history for model in (mine, plain)
    ]
    for one, other in zip(mine.get_weights(), plain.get_weights()):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)
    assert logs[0]["loss"] == pytest.approx(logs[1]["loss"], abs=1e-5)
    assert logs[0]["accuracy"] == pytest.approx(logs[1]["accuracy"])
    assert int(mine.optimizer.iterations.numpy()) == 48
    if kind == "async":
        assert strategy.staleness_stats() == strategy.staleness_stats()
        assert (strategy.staleness_stats().count, strategy.staleness_stats().maximum) == (48, 0)
    else:
        assert strategy.gradient_counts() == type(strategy.gradient_counts())((48,), (0,))

    mine.save(tmp_path / "model.keras")
    mine.save_weights(tmp_path / "model.weights.h5")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again.distribute_strategy) is not type(strategy)
    plain.load_weights(tmp_path / "model.weights.h5")
    for kept, loaded, weight in zip(again.get_weights(), plain.get_weights(), mine.get_weights()):
        np.testing.assert_array_equal(kept, weight)
        np.testing.assert_array_equal(loaded, weight)


@pytest.mark.keras
@pytest.mark.parametrize("damping", ["divide", "compensate"])
def test_fresh_gradients_are_not_damped(damping) -> None:
    options = tfs.ParameterServerOptions(partitioner=thirds)
    generator = np.random.default_rng(2)
    x, y = generator.integers(0, 20, (96, 4)).astype("int32"), generator.integers(0, 3, 96)
    weights = []
    for arguments in ({}, {"damping": damping}):
        strategy = tfs.AsyncParameterServerStrategy(options=options, **arguments)
        keras.utils.set_random_seed(4)
        with strategy.scope():
            model = model_of(word_layers(), keras.optimizers.SGD(0.1, momentum=0.9))
        model.fit(x, y, batch_size=12, epochs=3, shuffle=False, verbose=0)
        weights.append(model.get_weights())
    for plain, damped in zip(*weights):
        np.testing.assert_array_equal(plain, damped)


@pytest.mark.keras
@pytest.mark.parametrize("kind", ["none", "async", "sync", "collective"])
def test_training_stops_at_a_step(kind) -> None:
    kinds = {
        "none": tf.distribute.get_strategy,
        "async": tfs.AsyncParameterServerStrategy,
        "sync": tfs.SyncReplicasStrategy,
        "collective": tfs.CollectiveAllReduceStrategy,
    }
    with kinds[kind]().scope():
        model = model_of(word_layers(), keras.optimizers.SGD(0.1))
    x, y = np.zeros([8, 4], "int32"), np.zeros([8], "int32")
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(2).repeat()
    batches: list = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: batches.append(batch))

    def train(last: int, epochs: int) -> list:
        batches.clear()
        stop = tfs.callbacks.StopAtStep(last)
        model.fit(data, steps_per_epoch=3, epochs=epochs, verbose=0, callbacks=[count, stop])
        assert int(model.optimizer.iterations.numpy()) <= last
        return list(batches)

    assert train(7, 100) == [0, 1, 2, 0, 1, 2, 0]
    assert train(7, 100) == []  # it was there when training began
    assert train(9, 100) == [0, 1]
    assert train(100, 1) == [0, 1, 2]  # the data ended before


@pytest.mark.parametrize("value", [0, -1, 1.5, "7", True, None])
def test_a_bad_last_step_is_refused(value) -> None:
    with pytest.raises(tfs.OptionsError, match=f"last_step must be a whole number from 1; got {value!r}"):
        tfs.callbacks.StopAtStep(value)


# --- arguments ---


@pytest.mark.parametrize("value", [-1, 1.5, "2", True])
def test_a_bad_bound_on_staleness_is_refused(value) -> None:
    with pytest.raises(tfs.OptionsError, match=f"max_staleness .* got {value!r}"):
        tfs.AsyncParameterServerStrategy(max_staleness=value)


@pytest.mark.parametrize("value", [0, 3, 1.5, "2", True])
def test_a_bad_number_of_replicas_is_refused(value) -> None:
    with pytest.raises(tfs.OptionsError, match=f"replicas must be 1 or 2; got {value!r}"):
        tfs.AsyncParameterServerStrategy(replicas=value)
    with pytest.raises(tfs.OptionsError, match=f"replicas must be 1 or 2; got {value!r}"):
        tfs.SyncReplicasStrategy(replicas=value)


@pytest.mark.parametrize("role", ["ps", "worker"])
def test_a_copy_needs_another_server(role) -> None:
    tasks = {"worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}
    cluster = Cluster.from_tf_config(json.dumps({"cluster": tasks, "task": {"type": role, "index": 0}}))
    with pytest.raises(tfs.ClusterConfigError, match=r"replicas=2 keeps the copy .* list at least two"):
        tfs.AsyncParameterServerStrategy(replicas=2, cluster=cluster)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"damping": "halve"}, "damping must be None or one of 'divide', 'compensate'; got 'halve'"),
        ({"damping": ["divide"]}, "damping must be None or one of"),
        ({"compensation": 0.1}, "compensation goes with damping=.compensate. only; got 0.1"),
        ({"compensation": 0.1, "damping": "divide"}, "compensation goes with"),
        ({"compensation": -0.1, "damping": "compensate"}, "a finite number from 0; got -0.1"),
        ({"compensation": float("nan"), "damping": "compensate"}, "a finite number from 0; got nan"),
        ({"compensation": "1", "damping": "compensate"}, "a finite number from 0; got '1'"),
        ({"compensation": True, "damping": "compensate"}, "a finite number from 0; got True"),
    ],
)
def test_an_unknown_damping_is_refused(arguments, message) -> None:
    with pytest.raises(tfs.OptionsError, match=message):
        tfs.AsyncParameterServerStrategy(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backup_workers": 1}, "backup_workers .* from 0 to 0, .* got 1"),
        ({"backup_workers": -1}, "backup_workers .* got -1"),
        ({"backup_workers": 0.5}, "backup_workers .* got 0.5"),
        ({"replicas_to_aggregate": 0}, "replicas_to_aggregate .* from 1 to 1, .* got 0"),
        ({"replicas_to_aggregate": 2}, "replicas_to_aggregate .* got 2"),
        ({"replicas_to_aggregate": "1"}, "replicas_to_aggregate .* got '1'"),
        ({"options": {}}, "options must be a tfs.ParameterServerOptions; got {}"),
    ],
)
def test_bad_numbers_of_replicas_are_refused(arguments, message) -> None:
    with pytest.raises(tfs.OptionsError, match=message):
        tfs.SyncReplicasStrategy(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"placement": "best"}, "placement must be one of 'bytes', 'round_robin'; got 'best'"),
        ({"partitioner": 2}, "partitioner must be None or a function of shape and dtype; got 2"),
        ({"timeout": 0}, "timeout must be a finite number of seconds above 0; got 0"),
    ],
)
def test_bad_options_are_refused(arguments, message) -> None:
    with pytest.raises(tfs.OptionsError, match=message):
        tfs.ParameterServerOptions(**arguments)


@pytest.mark.parametrize("kind", [tfs.AsyncParameterServerStrategy, tfs.SyncReplicasStrategy])
def test_a_cluster_without_servers_is_refused(kind) -> None:
    cluster = Cluster.from_tf_config(
        '{"cluster": {"worker": ["h:1", "h:2"]}, "task": {"type": "worker", "index": 0}}'
    )
    with pytest.raises(tfs.ClusterConfigError, match=r'names no parameter server, .* list at least one "ps"'):
        kind(cluster=cluster)


def test_a_cluster_of_servers_alone_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"ps": ["h:1"]}, "task": {"type": "ps", "index": 0}}')
    with pytest.raises(tfs.ClusterConfigError, match="worker"):
        tfs.AsyncParameterServerStrategy()


def test_an_evaluator_trains_alone(monkeypatch) -> None:
    spec = '{"cluster": {"ps": ["h:1"], "worker": ["h:2"]}, "task": {"type": "evaluator", "index": 0}}'
    monkeypatch.setenv("TF_CONFIG", spec)
    strategy = tfs.AsyncParameterServerStrategy()
    assert (strategy.rank, strategy.size, len(strategy.extended.parameter_devices)) == (0, 1, 1)


@pytest.mark.parametrize("kind", [tfs.AsyncParameterServerStrategy, tfs.SyncReplicasStrategy])
def test_an_update_waits_for_what_its_caller_waits_for(kind) -> None:
    strategy = kind()
    with strategy.scope():
        variable = tf.Variable(1.0)

    def too_late() -> None:
        time.sleep(0.3)
        raise ValueError("the batch is bad")

    @tf.function
    def step(gradient: tf.Tensor) -> None:
        def replica(gradient: tf.Tensor) -> None:
            bad = tf.numpy_function(too_late, [], [])
            with tf.control_dependencies([bad]):
                strategy.extended.update(variable, lambda each, by: each.assign_sub(by), args=(gradient,))

        strategy.run(replica, args=(gradient,))

    with pytest.raises(tf.errors.OpError, match="the batch is bad"):
        step(tf.constant(1.0))
    assert float(variable.numpy()) == 1.0


def test_a_check_of_gradients_at_a_wrong_place_of_a_synchronous_step_is_refused() -> None:
    strategy = tfs.SyncReplicasStrategy()
    finite = tf.constant(True)

    def check(apply=lambda: None) -> None:
        strategy.apply_if_finite(finite, apply, lambda: None)

    for replica, text in (
        (lambda: tf.cond(finite, check, lambda: None), "inside tf.cond or a loop"),
        (lambda: check(check), "let one LossScaleOptimizer apply them"),
        (lambda: [check() for _ in range(5)], "more than 4 times in a step"),
    ):
        with pytest.raises(NotImplementedError, match=text):
            tf.function(strategy.run, autograph=False)(replica)
    strategy.close()
