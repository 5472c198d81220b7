"""A task of test_parameter_server_checkpoint.py: a server, or a worker that is killed as it trains and started again.

python -m tests.cluster.parameter_server.parameter_server_checkpoint_worker FOLDER STAGE [RANK:STEP]
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import zipfile
from pathlib import Path
from typing import Any, List

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.support.servers import wait_for_all, wait_for_one
from tf_strategies.keras.model_state import training_variables

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1

FEATURES, ROWS, BATCH, EPOCHS = 5, 180, 36, 5
STEPS = ROWS // BATCH
SAVE_FREQ, SAVED_AT = 4, 12
STAGE_FOLDER = Path(*sys.argv[1:3])
OPTIONS = tfs.ParameterServerOptions(timeout=60)


def rows() -> tuple:
    generator = np.random.default_rng(3)
    x = generator.standard_normal((ROWS, FEATURES)).astype("float32")
    return x, (x @ generator.standard_normal((FEATURES, 1))).astype("float32")


def dataset(batch: int = BATCH) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(rows()).shuffle(ROWS, seed=5).batch(batch)


def plain_model(width: int = 6, normalized: bool = False) -> Any:
    """What normalizes its batches is another model when other workers share them."""
    between = [keras.layers.BatchNormalization()] if normalized else []
    model = keras.Sequential(
        [
            keras.layers.Input((FEATURES,)),
            keras.layers.Dense(width, activation="tanh"),
            *between,
            keras.layers.Dense(1),
        ]
    )
    model.compile(keras.optimizers.Adam(0.02), "mse", metrics=["mae"])
    return model


def make_model(strategy: Any, **kind: Any) -> Any:
    keras.utils.set_random_seed(7)  # The shuffled order is the same on all workers.
    with strategy.scope():
        return plain_model(**kind)


class Steps(keras.callbacks.Callback):
    """Counts the batches, prints where the first is, and may end this process after so many."""

    def __init__(self, last: int = 0) -> None:
        super().__init__()
        self.batches = 0
        self._last = last
        self._epoch = 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if not self.batches:
            print(f"began at epoch {self._epoch} batch {batch}", flush=True)
        self.batches += 1
        print(f"step {self.batches}", flush=True)
        if self.batches == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


class Late(keras.callbacks.Callback):
    """Comes to the saving after a batch, counted from 1, a second later than others."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self._batches_left = batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._batches_left -= 1
        if not self._batches_left:
            time.sleep(1)


class Together(keras.callbacks.Callback):
    """Lets all workers end an epoch together, before the chief saves."""

    def __init__(self, strategy: Any) -> None:
        super().__init__()
        self._strategy = strategy

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        meet(self._strategy, f"epoch {epoch}")


def kill_in_saving(number: int) -> None:
    """Ends this process half way through the writing of the file with this number, from 1."""
    write, begun = zipfile.ZipFile.writestr, []

    def writestr(self, name, data) -> None:
        write(self, name, data)
        if name == "arrays/2" and self.filename:
            begun.append(name)
            self.fp.flush()
            if len(begun) == number:
                os.kill(os.getpid(), signal.SIGKILL)

    zipfile.ZipFile.writestr = writestr


def meet(strategy: Any, name: str) -> None:
    """Waits until all workers have come to the point of this name in this stage."""
    wait_for_all(STAGE_FOLDER, name, strategy.rank, strategy.size)


def own(folder: Path, strategy: Any, name: str) -> Path:
    """Workers have no folder in common: what is not the chief's must not be needed."""
    return folder / name if strategy.rank == 0 else folder / f"{name} of worker {strategy.rank}"


def train(strategy: Any, place: Path, extra: List[Any]) -> tuple:
    model = make_model(strategy)
    backup = tfs.callbacks.BackupAndRestore(place, save_freq=SAVE_FREQ)
    history = model.fit(dataset(), epochs=EPOCHS, verbose=0, callbacks=[backup, *extra])
    return model, history.history


def state_of(model: Any) -> dict:
    """All that is on servers, by name."""
    return {
        name: variable.numpy()
        for name, variable in training_variables(model).items()
        if getattr(variable, "lives_on_servers", False)
    }


def require_equal(model: Any, path: Path, tolerance: float) -> None:
    found = state_of(model)
    with np.load(path) as expected:
        assert set(expected) == set(found)
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=tolerance, err_msg=name)


def train_undisturbed(folder: Path) -> None:
    strategy = tfs.SyncReplicasStrategy(options=OPTIONS)
    model = make_model(strategy)
    files = [
        keras.callbacks.ModelCheckpoint(str(own(folder, strategy, "epoch-{epoch}") / "model.keras")),
        keras.callbacks.ModelCheckpoint(str(folder / "last.weights.h5"), save_weights_only=True),
    ]
    with strategy.scope():
        history = model.fit(dataset(), epochs=EPOCHS, verbose=0, callbacks=files)
    meet(strategy, "undisturbed")
    if strategy.rank == 0:
        np.savez(folder / "sync.npz", **state_of(model))
        np.savez(folder / "sync-loss.npz", loss=history.history["loss"])
        with strategy.scope():
            model.save(folder / "saved.keras")
    else:
        assert not own(folder, strategy, "epoch-1").exists()
    after = make_model(
        strategy
    )  # Though the chief alone has saved in scope, its variables have the others' numbers.
    after.fit(dataset(), epochs=1, verbose=0)
    meet(strategy, "after")
    require_plain_files(folder, model, strategy)
    meet(strategy, "loaded")
    strategy.close()


def require_plain_files(folder: Path, model: Any, strategy: Any) -> None:
    weights = plain_model()
    weights.load_weights(folder / "last.weights.h5")
    for path in (folder / f"epoch-{EPOCHS}" / "model.keras", folder / "saved.keras"):
        loaded = keras.models.load_model(path)
        assert type(loaded.distribute_strategy) is not type(strategy)
        assert int(loaded.optimizer.iterations.numpy()) == EPOCHS * STEPS
        for kept, also, weight in zip(loaded.get_weights(), weights.get_weights(), model.get_weights()):
            np.testing.assert_array_equal(kept, weight)
            np.testing.assert_array_equal(also, weight)


def train_asynchronously(folder: Path, epochs: int) -> tuple:
    """Each worker has its share of 12 batches an epoch, each server a part of every variable; the file stays."""
    servers = len(json.loads(os.environ["TF_CONFIG"])["cluster"]["ps"])
    cut = tf.distribute.experimental.partitioners.FixedShardsPartitioner(servers)
    strategy = tfs.AsyncParameterServerStrategy(
        options=tfs.ParameterServerOptions(partitioner=cut, timeout=60)
    )
    model = make_model(strategy, normalized=True)
    backup = tfs.callbacks.BackupAndRestore(own(folder, strategy, "async"), delete_checkpoint=False)
    steps = Steps()
    model.fit(dataset(ROWS // 12), epochs=epochs, verbose=0, callbacks=[backup, steps, Together(strategy)])
    meet(strategy, f"asynchronous {epochs}")
    return strategy, model, steps.batches


def check_asynchronous_is_saved(folder: Path) -> None:
    strategy, model, batches = train_asynchronously(folder, 2)
    assert batches == 2 * 12 // strategy.size
    if strategy.rank == 0:
        assert strategy.staleness_stats().count == 24 == int(model.optimizer.iterations.numpy())
        np.savez(folder / "async.npz", **state_of(model))
    meet(strategy, "saved")
    strategy.close()


def check_asynchronous_is_restored(folder: Path) -> None:
    strategy, model, batches = train_asynchronously(folder, 2)
    assert batches == 0
    require_equal(model, folder / "async.npz", 0.0)
    assert strategy.progress_of_fit().step() == 24
    meet(strategy, "restored")
    strategy.close()


def check_asynchronous_goes_on_with_fewer(folder: Path) -> None:
    strategy, model, batches = train_asynchronously(folder, 3)
    assert batches == 12 // strategy.size
    assert strategy.progress_of_fit().step() == 36 == int(model.optimizer.iterations.numpy())
    meet(strategy, "gone on")
    strategy.close()


def check_wrong_files_are_errors_on_all(folder: Path) -> None:
    strategy = tfs.AsyncParameterServerStrategy(options=OPTIONS)
    place = own(folder, strategy, "async")
    model = make_model(strategy, width=7, normalized=True)
    try:
        model.fit(dataset(), epochs=9, verbose=0, callbacks=[tfs.callbacks.BackupAndRestore(place)])
    except tfs.callbacks.CheckpointError as error:
        for text in ("another model's", "training.checkpoint", "kernel", "[5, 6]", "[5, 7]"):
            assert text in str(error), error
        assert strategy.rank == 0 or strategy.name_of(0) in str(error), error
    else:
        raise AssertionError("not refused")
    meet(strategy, "refused")
    strategy.close()


def check_synchronous_goes_on(folder: Path, name: str, tolerance: float) -> None:
    strategy = tfs.SyncReplicasStrategy(options=OPTIONS)
    place = own(folder, strategy, name)
    assert (place / "training.checkpoint").exists() == (strategy.rank == 0)
    steps = Steps()
    model, history = train(strategy, place, [steps])
    assert steps.batches == EPOCHS * STEPS - SAVED_AT, steps.batches
    meet(strategy, "continued")
    require_equal(model, folder / "sync.npz", tolerance)
    assert strategy.progress_of_fit().step() == EPOCHS * STEPS
    if strategy.rank == 0 and tolerance < 1e-5:
        np.testing.assert_allclose(history["loss"], np.load(folder / "sync-loss.npz")["loss"], rtol=1e-5)
    assert not place.exists()
    meet(strategy, "compared")
    strategy.close()


class Paced(keras.callbacks.Callback):
    """On the chief: the first two epochs end when the evaluator has seen as many checkpoints of them."""

    def __init__(self, strategy: Any) -> None:
        super().__init__()
        self._chief = strategy.rank == 0

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if self._chief and epoch < 2:
            wait_for_one(STAGE_FOLDER, "evaluated", epoch)


class Told(keras.callbacks.Callback):
    """On the evaluator: tells how many evaluations have ended."""

    def __init__(self) -> None:
        super().__init__()
        self._ended = 0

    def on_test_end(self, logs: Any = None) -> None:
        (STAGE_FOLDER / f"evaluated.{self._ended}").touch()
        self._ended += 1


def check_an_evaluator_follows(folder: Path) -> None:
    strategy = tfs.SyncReplicasStrategy(options=OPTIONS)
    model = make_model(strategy)
    followed = own(folder, strategy, "followed")
    files = keras.callbacks.ModelCheckpoint(str(followed / "{epoch}.weights.h5"), save_weights_only=True)
    backup = tfs.callbacks.BackupAndRestore(followed, delete_checkpoint=False)
    model.fit(dataset(), epochs=3, verbose=0, callbacks=[files, Paced(strategy), backup])
    meet(strategy, "followed")
    if strategy.rank == 0:
        logs = model.evaluate(*rows(), batch_size=BATCH, verbose=0, return_dict=True)
        (STAGE_FOLDER / "final.json").write_text(json.dumps(logs))
    meet(strategy, "evaluated all")
    strategy.close()


def evaluate(folder: Path) -> None:
    strategy = tfs.SyncReplicasStrategy(options=OPTIONS)
    model = make_model(strategy)
    x, y = rows()
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    evaluator = tfs.SidecarEvaluator(model, data, folder / "followed", callbacks=[Told()], idle_timeout=120)
    logs = evaluator.start()
    steps = [made.step for made in evaluator.evaluations]
    assert len(set(steps)) >= 2 and steps == sorted(steps) and steps[-1] == 3 * STEPS, steps
    expected = json.loads((STAGE_FOLDER / "final.json").read_text())
    assert set(logs) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(logs[name], value, rtol=1e-5)
    print("the evaluator ends", flush=True)


def train_until_killed(folder: Path, victim: str) -> None:
    """Servers and the other workers live on, and training ends when both workers, started again, have done their epochs."""
    rank, _, last = victim.partition(":")
    strategy = tfs.AsyncParameterServerStrategy(options=OPTIONS)
    model = make_model(strategy)
    backup = tfs.callbacks.BackupAndRestore(own(folder, strategy, "backup"))
    steps = Steps(int(last) if rank and int(rank) == strategy.rank else 0)
    model.fit(dataset(ROWS // 12), epochs=3, verbose=0, callbacks=[backup, steps])
    meet(strategy, "lived on")
    print(f"in all {strategy.progress_of_fit().step()} {int(model.optimizer.iterations.numpy())}", flush=True)
    assert not own(folder, strategy, "backup").exists()


def main(folder: Path, stage: str, victim: str = "") -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    if "evaluator" in os.environ["TF_CONFIG"]:
        evaluate(folder)
        return
    if stage == "alive":
        train_until_killed(folder, victim)
        return
    first = tfs.AsyncParameterServerStrategy(options=OPTIONS)
    if stage == "first":
        train_undisturbed(folder)
        check_asynchronous_is_saved(folder)
        strategy = tfs.SyncReplicasStrategy(options=OPTIONS)
        if strategy.rank == 0:
            kill_in_saving(4)
        train(strategy, own(folder, strategy, "sync"), [Late(SAVED_AT)] if strategy.rank == 2 else [])
    elif stage == "second":
        check_asynchronous_is_restored(folder)
        check_synchronous_goes_on(folder, "sync", 1e-6)
    elif stage == "third":
        check_an_evaluator_follows(folder)
        check_asynchronous_goes_on_with_fewer(folder)
        check_wrong_files_are_errors_on_all(folder)
        check_synchronous_goes_on(folder, "sync copy", 1e-5)
    first.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
