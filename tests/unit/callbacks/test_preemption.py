"""Tests SIGTERM in one process: it is saved in time, wherever it comes. tests/cluster/callbacks has several workers."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, List

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tf_strategies import callbacks  # noqa: E402
from tf_strategies.callbacks import termination  # noqa: E402
from tf_strategies.errors import OptionsError  # noqa: E402
from tf_strategies.parameter_server import SyncReplicasStrategy  # noqa: E402

pytestmark = pytest.mark.keras
keras = tf.keras
STEPS, EPOCHS = 4, 2


class TerminatedError(Exception):
    """The process would have ended."""


@pytest.fixture(autouse=True)
def handler() -> Any:
    """SIGTERM outside of a fit raises an exception in place of ending the tests."""

    def terminate(number: int, frame: object) -> None:
        raise TerminatedError

    before = signal.signal(signal.SIGTERM, terminate)
    yield terminate
    signal.signal(signal.SIGTERM, before)


class SignalAt(keras.callbacks.Callback):
    """Sends this process SIGTERM after so many batches, or after so many batches of validation."""

    def __init__(self, batch: int = 0, validation: int = 0) -> None:
        super().__init__()
        self.batch, self.validation = batch, validation
        self.trained = self.validated = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.trained += 1
        if self.trained == self.batch:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.validated += 1
        if self.validated == self.validation:
            os.kill(os.getpid(), signal.SIGTERM)


def make_model(strategy: Any = None) -> Any:
    keras.utils.set_random_seed(7)
    with (strategy or tf.distribute.get_strategy()).scope():
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"])
    return model


def data() -> tf.data.Dataset:
    generator = np.random.default_rng(5)
    x = generator.standard_normal((8 * STEPS, 3)).astype("float32")
    return tf.data.Dataset.from_tensor_slices((x, x.sum(axis=1, keepdims=True)))


def train(*extra: Any, knows_length: bool = True) -> tuple:
    model = make_model()
    rows = data() if knows_length else data().filter(lambda x, y: True)
    history = model.fit(
        rows.shuffle(8 * STEPS, seed=5).batch(8),
        epochs=EPOCHS,
        validation_data=data().batch(8 * STEPS),
        verbose=0,
        callbacks=list(extra),
    )
    return model.get_weights(), history.history


@functools.cache
def undisturbed(knows_length: bool) -> tuple:
    return train(knows_length=knows_length)


@pytest.mark.parametrize(
    ("knows_length", "sent", "left"),
    [
        (True, SignalAt(batch=2), 2 * STEPS - 2),
        (True, SignalAt(validation=1), STEPS),
        (True, SignalAt(batch=2 * STEPS), 0),
        (False, SignalAt(batch=STEPS - 1), STEPS + 1),
        (False, SignalAt(batch=STEPS), STEPS),
        (False, SignalAt(batch=2 * STEPS), 0),
    ],
)
def test_training_goes_on_after_the_batch_in_which_the_signal_came(
    knows_length: bool, sent: SignalAt, left: int, tmp_path: Path, handler: Any
) -> None:
    expected, logs = undisturbed(knows_length)
    with pytest.raises(SystemExit) as ended:
        train(
            callbacks.BackupAndRestore(tmp_path, save_before_preemption=True), sent, knows_length=knows_length
        )
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is handler
    counter = SignalAt()
    weights, continued = train(callbacks.BackupAndRestore(tmp_path), counter, knows_length=knows_length)
    assert counter.trained == left
    for one, other in zip(expected, weights):
        np.testing.assert_array_equal(one, other)
    assert continued == logs


def test_without_the_argument_the_signal_ends_the_process(tmp_path: Path) -> None:
    with pytest.raises(TerminatedError):
        train(callbacks.BackupAndRestore(tmp_path), SignalAt(batch=2))


def test_a_process_whose_fit_fails_after_the_signal_ends_too(
    tmp_path: Path, handler: Any, caplog: Any
) -> None:
    class Fails(SignalAt):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            super().on_train_batch_end(batch, logs)
            raise ValueError("of the script")

    with pytest.raises(SystemExit) as ended:
        train(callbacks.BackupAndRestore(tmp_path, save_before_preemption=True), Fails(batch=1))
    assert ended.value.code == 143
    assert "of the script" in caplog.text
    assert signal.getsignal(signal.SIGTERM) is handler


class SignalAtEnd(keras.callbacks.Callback):
    def on_train_end(self, logs: Any = None) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


class StopsAt(keras.callbacks.Callback):
    """Stops training after a batch of the first epoch."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch = batch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.stop_training = batch + 1 == self.batch


def test_training_that_ends_in_the_batch_of_the_signal_does_not_go_on(tmp_path: Path) -> None:
    expected, _ = train(StopsAt(2))
    backup = functools.partial(callbacks.BackupAndRestore, tmp_path, save_before_preemption=True)
    with pytest.raises(SystemExit):
        train(backup(), SignalAt(batch=2), StopsAt(2))
    with pytest.raises(SystemExit):  # once more, when there is nothing left to train
        train(backup(), SignalAtEnd())
    counter = SignalAt()
    weights, _ = train(backup(), counter)
    assert counter.trained == 0
    for one, other in zip(expected, weights):
        np.testing.assert_array_equal(one, other)


def test_a_fit_that_has_nothing_to_train_saves_nothing(tmp_path: Path) -> None:
    backup = callbacks.BackupAndRestore(tmp_path / "backup", save_before_preemption=True)
    with pytest.raises(TerminatedError):
        make_model().fit(
            data().batch(8), epochs=2, initial_epoch=2, verbose=0, callbacks=[backup, SignalAtEnd()]
        )
    assert not (tmp_path / "backup").exists()


def test_a_process_that_was_forked_within_fit_can_be_ended(tmp_path: Path) -> None:
    class Forks(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            child = os.fork()
            if child == 0:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
                os.kill(os.getpid(), signal.SIGTERM)
                os._exit(1)
            statuses.append(os.waitpid(child, 0)[1])

    statuses: List[int] = []
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    train(callbacks.BackupAndRestore(tmp_path, save_before_preemption=True), Forks())
    assert os.WTERMSIG(statuses[0]) == signal.SIGTERM


def test_the_first_process_of_a_container_ends_too() -> None:
    program = f"""
import importlib.util, os, signal
spec = importlib.util.spec_from_file_location("termination", {termination.__file__!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
with module.Termination():
    os.kill(os.getpid(), signal.SIGTERM)
print("goes on")
"""
    command = ["unshare", "--pid", "--fork", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "Operation not permitted" in done.stderr:
        pytest.skip("only root can make a namespace of processes")
    assert (done.returncode, done.stdout) == (143, ""), done.stderr


def test_a_signal_after_the_last_place_ends_the_process_as_usual(tmp_path: Path) -> None:
    model = make_model()
    backup = callbacks.BackupAndRestore(tmp_path, save_before_preemption=True)
    ended = SignalAtEnd()

    class Later(type(backup)):
        def on_train_end(self, logs: Any = None) -> None:
            super().on_train_end(logs)
            ended.on_train_end(logs)

    backup.__class__ = Later
    with pytest.raises(TerminatedError):
        model.fit(data().batch(8), verbose=0, callbacks=[backup])


def test_it_needs_the_main_thread_and_no_servers(tmp_path: Path) -> None:
    errors: List[Exception] = []

    def run() -> None:
        try:
            train(callbacks.BackupAndRestore(tmp_path, save_before_preemption=True))
        except OptionsError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "main thread" in str(errors[0])
    model = make_model(SyncReplicasStrategy())
    with pytest.raises(OptionsError, match="does not work with parameter servers"):
        model.fit(
            data().batch(8),
            verbose=0,
            callbacks=[callbacks.BackupAndRestore(tmp_path, save_before_preemption=True)],
        )
