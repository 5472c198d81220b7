"""One of several workers that are killed while they train, and started again; each check prints "passed <name>".

python -m tests.cluster.callbacks.checkpoint_worker FOLDER STAGE

In each stage but the last the workers end by a signal in one run of `fit`; the next stage goes on with it.
"""

from __future__ import annotations

import os
import signal
import sys
import zipfile
from pathlib import Path
from typing import Any, Callable, List

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.support.replicas import on_cpus
from tf_strategies import callbacks

keras = tf.keras
FEATURES, ROWS, BATCH, EPOCHS = 5, 48, 8, 4


def rows() -> tuple:
    generator = np.random.default_rng(3)
    x = generator.standard_normal((ROWS, FEATURES)).astype("float32")
    return x, (x @ generator.standard_normal((FEATURES, 1))).astype("float32")


def make_model(strategy, optimizer: Any, width: int = 6) -> Any:
    keras.utils.set_random_seed(7)
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Input((FEATURES,)),
                keras.layers.Dense(width, activation="relu"),
                keras.layers.BatchNormalization(),
                keras.layers.Dense(1),
            ]
        )
        model.compile(optimizer(), "mse", metrics=["mae"])
    return model


def with_compression(strategy) -> tfs.CollectiveAllReduceStrategy:
    """The same workers and devices."""
    compression = tfs.compression.TopK(0.1, min_elements=2)
    return tfs.CollectiveAllReduceStrategy(
        compression=compression, devices=list(strategy.extended.worker_devices)
    )


def sgd() -> Any:
    return keras.optimizers.SGD(0.05, momentum=0.9)


def adam() -> Any:
    return keras.optimizers.Adam(0.02)


class KillAt(keras.callbacks.Callback):
    """Sends this process a signal after so many batches."""

    def __init__(self, steps: int, number: int = signal.SIGKILL) -> None:
        super().__init__()
        self.left, self.number = steps, number

    def on_train_batch_end(self, batch, logs=None) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), self.number)


class KillAtEnd(KillAt):
    """Sends it when the last epoch has ended, and the others may have left `fit`."""

    def on_train_batch_end(self, batch, logs=None) -> None:
        pass

    def on_train_end(self, logs=None) -> None:
        os.kill(os.getpid(), self.number)


def kill_in_saving(number: int) -> None:
    """Ends this process half way through the writing of the checkpoint with this number, from 1."""
    write, begun = zipfile.ZipFile.writestr, []

    def writestr(self, name, data) -> None:
        write(self, name, data)
        if name == "arrays/2":
            begun.append(name)
            self.fp.flush()
            if len(begun) == number:
                os.kill(os.getpid(), signal.SIGKILL)

    zipfile.ZipFile.writestr = writestr


def shuffled_dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(rows()).shuffle(ROWS, seed=5).batch(BATCH)


def train_dataset(strategy, folder: Path, extra: List[Any]) -> Any:
    """6 batches an epoch, saved at its end."""
    backup = callbacks.BackupAndRestore(folder, save_freq="epoch")
    model = make_model(strategy, sgd)
    return model, model.fit(shuffled_dataset(), epochs=EPOCHS, verbose=0, callbacks=[backup, *extra])


def train_arrays(strategy, folder: Path, extra: List[Any]) -> Any:
    """6 batches an epoch, shuffled by Keras, saved every 4; gradients are compressed, of which much is not sent at once."""
    backup = callbacks.BackupAndRestore(folder, save_freq=4)
    model = make_model(with_compression(strategy), adam)
    x, y = rows()
    return model, model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=[backup, *extra])


def train_with_steps(strategy, folder: Path, extra: List[Any]) -> Any:
    """5 batches an epoch of an endless dataset, saved when SIGTERM comes; the learning rate falls, and training stops early."""
    backup = callbacks.BackupAndRestore(folder, save_before_preemption=True)
    lower = keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1, min_delta=1e6, min_lr=0.0)
    stop = keras.callbacks.EarlyStopping("loss", patience=2, min_delta=1e6, restore_best_weights=True)
    model = make_model(strategy, adam)
    return model, model.fit(
        shuffled_dataset().repeat(),
        steps_per_epoch=5,
        epochs=9,
        verbose=0,
        callbacks=[backup, lower, stop, *extra],
    )


RUNS = {"dataset": train_dataset, "arrays": train_arrays, "steps": train_with_steps}


def outcome(model: Any, history: Any) -> dict:
    result = {f"weight {number}": value for number, value in enumerate(model.get_weights())}
    listed = model.optimizer.variables
    for number, variable in enumerate(listed() if callable(listed) else listed):
        kind = "iterations" if "iteration" in variable.name else f"optimizer {number}"
        result[kind] = np.asarray(variable)
    result.update({name: np.asarray(values) for name, values in history.history.items()})
    return result


def train_undisturbed(strategy, folder: Path) -> None:
    for name, run in RUNS.items():
        expected = outcome(*run(strategy, folder / f"undisturbed-{name}", []))
        np.savez(folder / f"expected-{name}-{strategy.rank}.npz", **expected)
        if strategy.rank == 0:
            assert not (folder / f"undisturbed-{name}").exists()
    with np.load(folder / f"expected-steps-{strategy.rank}.npz") as steps:
        assert len(steps["loss"]) == 3, "early stopping must have stopped after three epochs"


def require_continued(strategy, folder: Path, name: str, begins_at: int) -> None:
    """Goes on with a run that was killed; it must end with the same bits as the undisturbed, without its first batches."""
    assert (own(strategy, folder, name) / "training.checkpoint").exists() == (strategy.rank == 0)
    counter = CountBatches()
    result = outcome(*RUNS[name](strategy, own(strategy, folder, name), [counter]))
    with np.load(folder / f"expected-{name}-{strategy.rank}.npz") as expected:
        assert set(expected) == set(result)
        for key in expected:
            if name == "dataset" and key == "iterations":
                continue  # Keras 2 may or may not count the step that finds no more data.
            np.testing.assert_array_equal(result[key], expected[key], err_msg=f"{name}: {key}")
        total = len(expected["loss"]) * (5 if name == "steps" else ROWS // BATCH)
    assert counter.batches == total - begins_at, (counter.batches, total)
    assert not own(strategy, folder, name).exists()
    print("passed", f"continued_{name}", flush=True)


class CountBatches(keras.callbacks.Callback):
    def __init__(self) -> None:
        super().__init__()
        self.batches = 0

    def on_train_batch_end(self, batch, logs=None) -> None:
        self.batches += 1


def own(strategy, folder: Path, name: str) -> Path:
    """Workers have no folder in common: what is not the chief's must not be needed."""
    return folder / name if strategy.rank == 0 else folder / f"{name} of worker {strategy.rank}"


def refused(run: Callable, *words: str) -> None:
    try:
        run()
    except callbacks.CheckpointError as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError("not refused")


def check_wrong_checkpoints(strategy, folder: Path) -> None:
    place = own(strategy, folder, "wrong")
    path = place / "training.checkpoint"

    def train(width: int = 6, epochs: int = 1) -> None:
        model = make_model(strategy, sgd, width)
        keep = callbacks.BackupAndRestore(place, delete_checkpoint=False)
        model.fit(shuffled_dataset(), epochs=epochs, verbose=0, callbacks=[keep])

    train()
    refused(lambda: train(width=7), "another model's", "training.checkpoint", "kernel", "[5, 6]", "[5, 7]")
    if strategy.rank == 0:
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    refused(train, "damaged", "training.checkpoint", "delete")
    if strategy.rank == 0:
        damaged = bytearray(whole)
        damaged[len(whole) // 2] ^= 1
        path.write_bytes(bytes(damaged))
    refused(train, "damaged", "training.checkpoint")
    if strategy.rank == 0:
        path.unlink()
        path.mkdir()
    refused(train, f"{strategy.name_of(0)} cannot read", "worker 0 (127.0.0.1:", "training.checkpoint")
    print("passed", "wrong_checkpoints", flush=True)


def check_saved_models(strategy, folder: Path) -> None:
    x, y = rows()

    def fit(model: Any, epochs: int, initial_epoch: int = 0) -> None:
        model.fit(
            x, y, batch_size=BATCH, shuffle=False, epochs=epochs, initial_epoch=initial_epoch, verbose=0
        )

    whole, first = make_model(strategy, adam), make_model(strategy, adam)
    fit(whole, 2)
    fit(first, 1)
    predicted = first.predict(x, batch_size=BATCH, verbose=0)
    path = folder / f"model-{strategy.rank}.keras"
    first.save(path)
    with strategy.scope():
        second = keras.models.load_model(path)
    fit(second, 2, initial_epoch=1)
    for one, other in zip(whole.trainable_variables, second.trainable_variables):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    if strategy.rank == 0:
        first.save(folder / "chief.keras")
        plain = keras.models.load_model(folder / "chief.keras")
        assert type(plain.distribute_strategy) is not type(strategy)
        np.testing.assert_allclose(plain.predict(x, verbose=0), predicted, rtol=1e-5, atol=1e-6)
        assert int(plain.optimizer.iterations.numpy()) == ROWS // BATCH
        with zipfile.ZipFile(folder / "chief.keras") as archive:
            assert b"tf_strategies" not in archive.read("config.json")
    print("passed", "saved_models", flush=True)


def main(folder: Path, stage: int) -> None:
    strategy = on_cpus(2)
    chief = strategy.rank == 0
    if stage == 1:
        train_undisturbed(strategy, folder)
        train_dataset(strategy, own(strategy, folder, "dataset"), [] if chief else [KillAt(15)])
    elif stage == 2:
        require_continued(strategy, folder, "dataset", begins_at=12)
        if chief:
            kill_in_saving(3)
        train_arrays(strategy, own(strategy, folder, "arrays"), [])
    elif stage == 3:
        require_continued(strategy, folder, "arrays", begins_at=8)
        asked = [] if chief else [KillAt(11, signal.SIGTERM)]
        train_with_steps(strategy, own(strategy, folder, "steps"), asked)
    elif stage == 4:
        batches = int((folder / "batches_of_epoch_3").read_text())
        require_continued(strategy, folder, "steps", begins_at=10 + batches)
        check_wrong_checkpoints(strategy, folder)
        check_saved_models(strategy, folder)
        backup = callbacks.BackupAndRestore(folder / "end", save_before_preemption=True)
        asked = [] if chief else [KillAtEnd(0, signal.SIGTERM)]
        make_model(strategy, sgd).fit(shuffled_dataset(), epochs=2, verbose=0, callbacks=[backup, *asked])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
