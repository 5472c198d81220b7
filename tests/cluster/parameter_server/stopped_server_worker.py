"""A task of test_parameter_server_failures.py: waits for its only server at a moment of its own when that server stops.

python -m tests.cluster.parameter_server.stopped_server_worker FOLDER [MOMENT]

A worker does what MOMENTS has of that name: it prints "comes", waits for FOLDER/stopped, and then needs the server.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.support.processes import wait_until

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1

_STEPS = 3


class WaitAtLastStep(keras.callbacks.Callback):
    """What follows the last step of an epoch, and what callbacks after this one do, finds the server stopped."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch + 1 == _STEPS:
            wait_for_the_stop(self._folder)


def wait_for_the_stop(folder: Path) -> None:
    print("comes", flush=True)
    wait_until((folder / "stopped").exists, 120, "the stop")


def made(strategy: Any) -> keras.Model:
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3)])
        model.compile(keras.optimizers.SGD(0.01), "mse", metrics=["mae"])
    return model


def fit(model: keras.Model, *callbacks: Any) -> None:
    data = tf.data.Dataset.from_tensors((np.ones([2, 4], np.float32), np.ones([2, 3], np.float32))).repeat()
    model.fit(data, steps_per_epoch=_STEPS, epochs=2, verbose=0, callbacks=list(callbacks))


def writes_a_checkpoint(strategy: Any, folder: Path) -> None:
    backup = tfs.callbacks.BackupAndRestore(str(folder / "backup"), save_freq=_STEPS)
    fit(made(strategy), WaitAtLastStep(folder), backup)


def looks_at_the_step(strategy: Any, folder: Path) -> None:
    fit(made(strategy), WaitAtLastStep(folder), tfs.callbacks.StopAtStep(10_000))


def ends_an_epoch(strategy: Any, folder: Path) -> None:
    fit(made(strategy), WaitAtLastStep(folder))


def writes_weights_and_ends(strategy: Any, folder: Path) -> None:
    model = made(strategy)
    weights = model.get_weights()
    wait_for_the_stop(folder)
    model.set_weights(weights)


def makes_a_model(strategy: Any, folder: Path) -> None:
    made(strategy)
    wait_for_the_stop(folder)
    made(strategy)


MOMENTS = {
    moment.__name__: moment
    for moment in (
        writes_a_checkpoint,
        looks_at_the_step,
        ends_an_epoch,
        writes_weights_and_ends,
        makes_a_model,
    )
}


def main(folder: str, moment: str = "") -> None:
    strategy = tfs.AsyncParameterServerStrategy(
        options=tfs.ParameterServerOptions(timeout=60, heartbeat_timeout=3)
    )
    MOMENTS[moment](strategy, Path(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
