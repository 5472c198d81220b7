"""One worker of test_local_steps.py: trains the programs of task.py, given as a JSON list of names, on so many local replicas.

Some programs compare for themselves, and end with an error if something is wrong: "resumed" trains with an interruption and
without, "batches" mixes train_on_batch, fit and compile, "shared" has two models with a common layer, and in "lost" and "lost
on its way" the last worker is killed.
Prints the results as one line of JSON: for each program its history, its weights, and what was communicated in its last epoch.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest
import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.local_steps.task import BATCH, EPOCHS, PROGRAMS, make_model, make_rows
from tests.support.replicas import require_equal_everywhere


class Collectives(tf.keras.callbacks.Callback):
    """Notes the names of the collectives of the steps of the last epoch."""

    def __init__(self, strategy: tfs.CollectiveAllReduceStrategy) -> None:
        super().__init__()
        self._strategy = strategy
        self.names: List[str] = []
        self._before = 0

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        self._before = self._count()

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        recorded = self._strategy.recorded_collectives()
        self.names = [each.name for each in recorded[len(recorded) - self._count() + self._before :]]

    def _count(self) -> int:
        return sum(each.calls for each in self._strategy.communication_stats().collectives)


def run_loop(strategy: tfs.CollectiveAllReduceStrategy, model: tf.keras.Model, rows: Any) -> None:
    """Trains as `fit` does."""

    def on_replica(x: tf.Tensor, y: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            losses = tf.reduce_mean(tf.square(model(x, training=True) - y), axis=1)
            loss = tf.nn.compute_average_loss(losses, global_batch_size=tf.minimum(BATCH, left))
        variables = model.trainable_variables
        model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))

    left = tf.Variable(0, dtype=tf.int32)
    step = tf.function(lambda batch: strategy.run(on_replica, args=batch))
    data = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(rows).batch(BATCH))
    for _ in range(EPOCHS):
        left.assign(len(rows[0]))
        for batch in data:
            with strategy.local_step(model):
                step(batch)
            left.assign_sub(BATCH)
    strategy.average_weights(model)


def train(name: str, devices: List[str]) -> Dict[str, Any]:
    program = PROGRAMS[name]
    options = tfs.CommunicationOptions(timeout=60)
    strategy = tfs.CollectiveAllReduceStrategy(options, devices=devices, local_steps=program.options)
    with strategy.scope():
        model = make_model(program)
    collectives = Collectives(strategy)
    x, y = make_rows(program.repeats)
    if program.in_loop:
        run_loop(strategy, model, (x, y))
        history = {"loss": []}
    else:
        given = {"batch_size": BATCH, "shuffle": False, "epochs": EPOCHS, "verbose": 0}
        history = model.fit(x, y, callbacks=[collectives], **given).history
    listed = model.optimizer.variables
    require_equal_everywhere(
        strategy, [*model.weights, *(listed() if callable(listed) else listed), *history["loss"]]
    )
    loss, mae = model.evaluate(x, y, batch_size=BATCH, verbose=0)
    strategy.close()
    return {
        "history": history,
        "evaluated": [loss, mae],
        "weights": [np.ravel(each).tolist() for each in model.get_weights()],
        "collectives": collectives.names,
    }


class Interruption(tf.keras.callbacks.Callback):
    """Ends `fit` with an exception in its second epoch."""

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        if batch == 2 and self.model.optimizer.iterations.numpy() > 4:
            raise InterruptedError


def resume(devices: List[str]) -> Dict[str, Any]:
    """Trains with a backup after every second batch, when an average is on its way, without an interruption and with one."""
    folder = tempfile.mkdtemp()
    strategy = tfs.CollectiveAllReduceStrategy(
        devices=devices, local_steps=tfs.DiLoCo(sync_every=4, fragments=2, overlap_steps=1)
    )
    x, y = make_rows()

    def fit(place: str, *callbacks: tf.keras.callbacks.Callback) -> tf.keras.Model:
        with strategy.scope():
            model = make_model(PROGRAMS["outer optimizer"])
        backup = tfs.callbacks.BackupAndRestore(Path(folder, place), save_freq=2)
        given = {"batch_size": BATCH, "shuffle": False, "verbose": 0}
        model.fit(x, y, epochs=EPOCHS, callbacks=[backup, *callbacks], **given)
        return model

    whole = fit("whole")
    try:
        fit("parts", Interruption())
    except InterruptedError:
        parts = fit("parts")
    for one, other in zip(whole.get_weights(), parts.get_weights()):
        np.testing.assert_array_equal(one, other)
    strategy.close()
    return {"history": {}, "evaluated": [], "weights": [], "collectives": []}


class DividesByBatch(tf.keras.Model):
    """A model whose step divides by the rows of all workers, as loops do."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = tf.keras.layers.Dense(1)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return self.dense(x)

    def train_step(self, data: Any) -> Dict[str, tf.Tensor]:
        x, y = data
        return {"loss": tf.nn.compute_average_loss(tf.abs(self(x) - y)[:, 0], global_batch_size=BATCH)}


def mix(devices: List[str]) -> Dict[str, Any]:
    """Trains on batches that differ between workers, then in `fit`, which begins with equal weights, and compiles between."""
    strategy = tfs.CollectiveAllReduceStrategy(
        devices=devices, local_steps=tfs.LocalSGD(sync_every=3, warmup_steps=2)
    )
    x, y = make_rows()
    with strategy.scope():
        model = make_model(PROGRAMS["outer optimizer"])
    for _ in range(4):
        model.train_on_batch(x[:BATCH], y[:BATCH] + strategy.rank)
    model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0)
    for use in (model.predict_on_batch, lambda rows: model.test_on_batch(rows, y[:BATCH])):
        model.train_on_batch(x[:BATCH], y[:BATCH])
        use(x[:BATCH])
        require_equal_everywhere(strategy, model.weights)
    model.train_on_batch(x[:BATCH], y[:BATCH])
    with strategy.scope():
        model.compile(tf.keras.optimizers.SGD(0.01), "mse")
        wrong = DividesByBatch()
        wrong.compile("sgd")
    model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0)
    require_equal_everywhere(strategy, model.weights)
    try:
        wrong.fit(x, y, batch_size=BATCH, verbose=0)
        raise AssertionError("a step that divides by the global batch size was not refused")
    except tfs.OptionsError as error:
        assert "tf.nn.compute_average_loss" in str(error)
    strategy.close()
    return {"history": {}, "evaluated": [], "weights": [], "collectives": []}


class Constant(tf.keras.layers.Layer):
    """Keeps a weight of -3.4e38, as masks of attention have, which no step changes."""

    def build(self, shape: Any) -> None:
        self.mask = self.add_weight(
            name="mask", shape=[3], trainable=False, initializer=tf.keras.initializers.Constant(-3.4e38)
        )
        super().build(shape)

    def call(self, x: tf.Tensor) -> tf.Tensor:
        return x


def share(devices: List[str]) -> Dict[str, Any]:
    """Trains two models that share a layer in turn, and freezes another layer now and then, within rounds."""
    strategy = tfs.CollectiveAllReduceStrategy(devices=devices, local_steps=tfs.LocalSGD(sync_every=2))
    x, y = make_rows()
    with strategy.scope():
        shared, constant = tf.keras.layers.Dense(8), Constant()
        models = []
        for _ in range(2):
            layers = [tf.keras.layers.Input([8]), shared, constant, tf.keras.layers.Dense(1)]
            models.append(tf.keras.Sequential(layers))
            models[-1].compile(tf.keras.optimizers.SGD(0.01), "mse")
    for number in (1, 0, 1, 0):
        models[number].train_on_batch(x[:BATCH], y[:BATCH] + strategy.rank)
    for model in models:
        strategy.average_weights(model)
        require_equal_everywhere(strategy, model.weights)
    models[0].train_on_batch(x[:BATCH], y[:BATCH])
    models[1].fit(x, y, batch_size=BATCH, verbose=0)
    for number in range(3):
        shared.trainable = number % 2 == 0
        with strategy.scope():
            models[0].compile(models[0].optimizer, "mse")
        models[0].train_on_batch(x[:BATCH], y[:BATCH])
    strategy.average_weights(models[0])
    require_equal_everywhere(strategy, models[0].weights)
    np.testing.assert_array_equal(constant.mask.numpy(), np.float32(-3.4e38))
    with strategy.scope():
        models[0].compile("sgd", lambda labels, outputs: tf.reduce_mean(tfs.joint_rows(outputs)))
    with pytest.raises(Exception, match="a local step does not have the rows of the other workers"):
        models[0].train_on_batch(x[:BATCH], y[:BATCH])
    strategy.close()
    return {"history": {}, "evaluated": [], "weights": [], "collectives": []}


class Killed(tf.keras.callbacks.Callback):
    """Kills the last worker in the middle of a round."""

    def __init__(self, strategy: tfs.CollectiveAllReduceStrategy) -> None:
        super().__init__()
        self._is_victim = strategy.rank == strategy.size - 1

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        if batch == 5 and self._is_victim:
            print("killed at", time.monotonic(), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


def lose_one(devices: List[str]) -> Dict[str, Any]:
    """Trains without an average, until the strategy tells that a worker is lost."""
    strategy = tfs.CollectiveAllReduceStrategy(
        devices=devices, local_steps=tfs.LocalSGD(sync_every=1_000_000)
    )
    with strategy.scope():
        model = make_model(PROGRAMS["outer optimizer"])
    x, y = make_rows()
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH).repeat()
    try:
        model.fit(data, steps_per_epoch=1_000_000, verbose=0, callbacks=[Killed(strategy)])
    except tfs.WorkerLostError as error:
        return {"lost": str(error), "at": time.monotonic()}
    raise AssertionError("nobody was lost")


def wait_for_average(devices: List[str]) -> Dict[str, Any]:
    """Waits for an average that is on its way, and for which the last worker does not come, until that is lost."""
    options = tfs.DiLoCo(sync_every=2, overlap_steps=1)
    strategy = tfs.CollectiveAllReduceStrategy(devices=devices, local_steps=options)
    with strategy.scope():
        model = make_model(PROGRAMS["outer optimizer"])

    def change() -> None:
        for each in model.trainable_variables:
            each.assign_add(tf.ones_like(each))

    is_victim = strategy.rank == strategy.size - 1
    for _ in range(1 if is_victim else 2):
        with strategy.local_step(model):
            change()
    print("waits", flush=True)
    if is_victim:
        time.sleep(600)
    try:
        strategy.average_weights(model)
    except tfs.WorkerLostError as error:
        return {"lost": str(error), "at": time.monotonic()}
    raise AssertionError("nobody was lost")


CHECKS = {
    "resumed": resume,
    "batches": mix,
    "shared": share,
    "lost": lose_one,
    "lost on its way": wait_for_average,
}


def main(names: str, replicas: str) -> None:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * int(replicas)
    )
    devices = [f"CPU:{number}" for number in range(int(replicas))]
    results = {
        name: CHECKS[name](devices) if name in CHECKS else train(name, devices) for name in json.loads(names)
    }
    print("results", json.dumps(results), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
