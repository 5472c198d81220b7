"""Going on within an epoch, for kinds of data that the tests with killed workers leave out; one process, two replicas."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tf_strategies import callbacks  # noqa: E402
from tf_strategies.callbacks import group_state  # noqa: E402
from tf_strategies.callbacks.checkpoint_file import parse  # noqa: E402
from tf_strategies.collective import CollectiveAllReduceStrategy  # noqa: E402
from tf_strategies.errors import OptionsError  # noqa: E402
from tf_strategies.keras.model_state import metric_variables, training_variables  # noqa: E402
from tf_strategies.parameter_server import (  # noqa: E402
    AsyncParameterServerStrategy,
    SyncReplicasStrategy,
)

pytestmark = pytest.mark.keras
keras = tf.keras
KERAS = importlib.metadata.version("tf_keras" if os.environ.get("TF_USE_LEGACY_KERAS") == "1" else "keras")
BATCH, STEPS, EPOCHS = 8, 5, 3


class StoppedError(Exception):
    """In place of a kill."""


class StopAt(keras.callbacks.Callback):
    def __init__(self, steps: int) -> None:
        super().__init__()
        self.left = steps

    def on_train_batch_end(self, batch, logs=None) -> None:
        self.left -= 1
        if self.left == 0:
            raise StoppedError


def make_model(strategy: CollectiveAllReduceStrategy) -> Any:
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Input((3,)),
                keras.layers.Dense(4),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"])
    return model


def batches() -> Iterator[tuple]:
    """Endless; each differs from all others."""
    generator = np.random.default_rng(5)
    while True:
        x = generator.standard_normal((BATCH, 3)).astype("float32")
        yield x, x.sum(axis=1, keepdims=True)


def dataset() -> tf.data.Dataset:
    kept = batches()
    rows = [np.concatenate(part) for part in zip(*(next(kept) for _ in range(STEPS)))]
    return tf.data.Dataset.from_tensor_slices(tuple(rows)).shuffle(BATCH * STEPS, seed=5)


def optimizers() -> list:
    made = [lambda: keras.optimizers.SGD(0.5)]
    if hasattr(keras.optimizers.legacy.SGD, "get_config"):  # not of Keras 3
        made.append(lambda: keras.optimizers.legacy.SGD(0.5))
    return made


def of_unknown_length() -> tuple:
    return dataset().filter(lambda x, y: True).batch(BATCH), {}


def shorter_than_an_epoch_of_its_own() -> tuple:
    return dataset().batch(BATCH).repeat(), {"steps_per_epoch": STEPS - 2}


@pytest.mark.parametrize("data", [of_unknown_length, shorter_than_an_epoch_of_its_own])
def test_training_goes_on_where_it_was(data, strategy, tmp_path: Path) -> None:
    def train(*extra: Any) -> tuple:
        model = make_model(strategy)
        x, options = data()
        history = model.fit(x, epochs=EPOCHS, verbose=0, callbacks=list(extra), **options)
        return model.get_weights(), history.history

    expected, logs = train()
    steps = data()[1].get("steps_per_epoch", STEPS)
    with pytest.raises(StoppedError):
        train(callbacks.BackupAndRestore(tmp_path, save_freq=steps + 1), StopAt(steps + 3))
    counter = StopAt(10 * steps)
    weights, continued_logs = train(callbacks.BackupAndRestore(tmp_path, save_freq=steps + 1), counter)
    assert 10 * steps - counter.left == EPOCHS * steps - (steps + 1)
    for one, other in zip(expected, weights):
        np.testing.assert_array_equal(one, other)
    assert continued_logs == logs


@pytest.mark.parametrize("make_optimizer", optimizers())
def test_an_epoch_that_goes_on_has_its_learning_rate(make_optimizer, strategy, tmp_path: Path) -> None:
    def train(*extra: Any) -> list:
        model = make_model(strategy)
        with strategy.scope():
            model.compile(make_optimizer(), "mse")
        rates: list = []
        reads = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: rates.append(float(model.optimizer.learning_rate.numpy()))
        )
        halves = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
        with contextlib.suppress(StoppedError):
            model.fit(dataset().batch(BATCH), epochs=EPOCHS, verbose=0, callbacks=[reads, *extra, halves])
        return rates

    expected = train()
    assert len(set(expected)) == EPOCHS
    begun = train(callbacks.BackupAndRestore(tmp_path, save_freq=STEPS + 2), StopAt(STEPS + 3))
    assert begun[: STEPS + 2] + train(callbacks.BackupAndRestore(tmp_path)) == expected


@pytest.mark.parametrize("kind", [AsyncParameterServerStrategy, SyncReplicasStrategy])
def test_training_without_servers_goes_on_with_them(kind, tmp_path: Path) -> None:
    def train(strategy: Any, epochs: int) -> tuple:
        model, counter = make_model(strategy), StopAt(10 * STEPS)
        keep = callbacks.BackupAndRestore(tmp_path, delete_checkpoint=False)
        model.fit(dataset().batch(BATCH), epochs=epochs, verbose=0, callbacks=[keep, counter])
        return model, 10 * STEPS - counter.left

    alone, steps = train(CollectiveAllReduceStrategy(devices=["CPU:0"]), EPOCHS)
    assert steps == EPOCHS * STEPS
    served, steps = train(kind(), EPOCHS)
    assert steps == 0
    for one, other in zip(training_variables(alone).values(), training_variables(served).values()):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert train(kind(), EPOCHS + 1)[1] == STEPS


@pytest.mark.parametrize("kind", [AsyncParameterServerStrategy, SyncReplicasStrategy])
def test_training_on_servers_goes_on_where_it_was(kind, tmp_path: Path) -> None:
    """Each strategy has servers of its own in this process, so that one made anew is as servers started anew."""
    steps, path = STEPS, tmp_path / "training.checkpoint"

    def train(*extra: Any) -> tuple:
        strategy = kind()
        model = make_model(strategy)
        data = dataset().batch(BATCH)
        history = model.fit(data, epochs=EPOCHS, verbose=0, callbacks=list(extra))
        return strategy, model, history.history

    _, expected, logs = train()
    with pytest.raises(StoppedError):
        train(callbacks.BackupAndRestore(tmp_path, save_freq=steps + 1), StopAt(steps + 2))
    saved = parse(path.read_bytes(), "saved")
    assert saved.facts["step"] == steps + 1
    counter = StopAt(10 * steps)
    keep = callbacks.BackupAndRestore(tmp_path, save_freq=steps + 1, delete_checkpoint=False)
    strategy, model, continued_logs = train(keep, counter)
    assert 10 * steps - counter.left == EPOCHS * steps - (steps + 1)
    for one, other in zip(expected.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(one, other)
    assert continued_logs == logs
    assert strategy.progress_of_fit().step() == EPOCHS * steps
    last = parse(path.read_bytes(), "last")
    assert last.facts["step"] == 2 * (steps + 1)
    assert train(callbacks.BackupAndRestore(tmp_path))[2] == logs
    assert not tmp_path.exists()


def test_with_another_number_of_replicas_sums_stay_and_statistics_are_averaged(strategy) -> None:
    model = make_model(strategy)
    model.fit(next(batches())[0], next(batches())[1], batch_size=BATCH, verbose=0)
    kept = group_state.collect(None, {**training_variables(model), **metric_variables(model)})
    counts = {name: array for name, array in kept.arrays.items() if name.startswith("metrics/")}
    assert any(array.sum() > 0 for array in counts.values())

    alone = make_model(CollectiveAllReduceStrategy(devices=["CPU:0"]))
    alone.fit(*next(batches()), verbose=0)
    variables = {**training_variables(alone), **metric_variables(alone)}
    group_state.check(kept, variables, "kept")
    group_state.assign(None, kept, variables)
    results = [
        {name: float(value) for name, value in each.get_metrics_result().items()} for each in (model, alone)
    ]
    assert results[0] == pytest.approx(results[1], rel=1e-6)
    for name, variable in variables.items():
        fact, array = kept.facts[name], kept.arrays[name]
        if fact["each"] and not fact["sum"]:
            np.testing.assert_allclose(variable.numpy(), array.mean(axis=0), rtol=1e-6)
    for one, other in zip(model.trainable_variables, alone.trainable_variables):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@pytest.mark.parametrize("save_freq", [0, -1, 1.5, True, "batch"])
def test_save_freq_is_a_word_or_a_number_of_batches(save_freq) -> None:
    with pytest.raises(OptionsError, match="save_freq"):
        callbacks.BackupAndRestore("somewhere", save_freq=save_freq)


def test_a_directory_must_be_named() -> None:
    with pytest.raises(OptionsError, match="directory"):
        callbacks.BackupAndRestore("")


def test_a_loop_of_ones_own_is_told_what_to_use_instead(strategy, tmp_path: Path) -> None:
    backup = callbacks.BackupAndRestore(tmp_path)
    called = keras.callbacks.CallbackList([backup], model=make_model(strategy))
    with pytest.raises(OptionsError, match=r"CheckpointManager"):
        called.on_train_begin()


def test_a_second_one_in_a_fit_is_refused(strategy, tmp_path: Path) -> None:
    two = [callbacks.BackupAndRestore(tmp_path / name) for name in "ab"]
    with pytest.raises(
        OptionsError,
        match="fit has two that say where it continues, BackupAndRestore and BackupAndRestore; leave one",
    ):
        make_model(strategy).fit(dataset().batch(BATCH), verbose=0, callbacks=two)


@pytest.mark.matrix
def test_it_is_refused_where_an_epoch_cannot_be_begun_in_its_middle(tmp_path: Path) -> None:
    model = make_model(CollectiveAllReduceStrategy())
    fit = {"epochs": 1, "verbose": 0, "callbacks": [callbacks.BackupAndRestore(tmp_path)]}
    if KERAS.startswith(("3.3.", "3.4.", "3.5.", "3.6.")):
        with pytest.raises(OptionsError, match=r'needs Keras 3.7 or newer.*pip install "keras>=3.7"'):
            model.fit(dataset().batch(BATCH), **fit)
    else:
        model.fit(dataset().batch(BATCH), **fit)
