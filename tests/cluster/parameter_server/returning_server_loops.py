"""A task of test_returning_servers.py: `fit`, `evaluate`, `predict` and `train_on_batch`, in each of which a server is killed.

python -m tests.cluster.parameter_server.returning_server_loops FOLDER

Before each kill it prints the server and waits for a file, which the test makes after the kill.
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

LOOPS = {"fit": 0, "evaluate": 1, "predict": 0, "train_on_batch": 1}
"""The server that is killed in each loop."""

_BATCHES = 10
_SECONDS = 60


def lose(loop: str, folder: Path) -> None:
    print(f"in {loop}: kill ps {LOOPS[loop]}", flush=True)
    wait_until((folder / f"killed in {loop}").exists, _SECONDS, "the kill")


def is_copied(strategy: tf.distribute.Strategy) -> bool:
    """Returns True if each server has the values that the other one holds now."""
    servers = strategy._servers
    for index, used in enumerate(servers._used):
        for name, variable in used.alive():
            if not used.kinds[name].is_of_model:
                continue
            with tf.device(servers.devices[1 - index]):
                copy = tf.raw_ops.VarHandleOp(
                    dtype=variable.dtype,
                    shape=variable.shape,
                    container=f"copy of ps {index}",
                    shared_name=f"{servers.name}/{name}",
                )
                if not tf.raw_ops.VarIsInitializedOp(resource=copy):
                    return False
                value = tf.raw_ops.ReadVariableOp(resource=copy, dtype=variable.dtype).numpy()
            if not np.array_equal(value, variable.numpy()):
                return False
    return True


class Loses(keras.callbacks.Callback):
    """Waits for the kill, once: in the middle of the loop, or at the end of an epoch of `fit`."""

    def __init__(self, loop: str, folder: Path) -> None:
        super().__init__()
        self._loop, self._folder, self.begun = loop, folder, 0

    def on_test_begin(self, logs: Any = None) -> None:
        self.begun += 1

    on_predict_begin = on_test_begin

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == _BATCHES // 2 and self.begun == 1:
            lose(self._loop, self._folder)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == _BATCHES - 1 and self.begun == 0:
            self.begun = 1
            lose(self._loop, self._folder)

    on_predict_batch_end = on_test_batch_end


def main(folder: Path) -> None:
    strategy = tfs.AsyncParameterServerStrategy(
        replicas=2, options=tfs.ParameterServerOptions(timeout=_SECONDS)
    )
    with strategy.scope():
        dense = [keras.layers.Dense(16), keras.layers.Dense(16), keras.layers.Dense(1)]
        model = keras.Sequential([keras.layers.Input((8,)), *dense])
        model.compile("adam", "mse", metrics=["mae"])
    x = np.random.RandomState(0).randn(16 * _BATCHES, 8).astype(np.float32)
    y = x.sum(axis=1, keepdims=True)
    sizes = {"batch_size": 16, "verbose": 0}
    model.fit(x, y, **sizes)
    wait_until(lambda: is_copied(strategy), _SECONDS, "the copies")
    history = model.fit(x, y, epochs=3, callbacks=[Loses("fit", folder)], **sizes)
    assert len(history.history["loss"]) == 3
    assert int(model.optimizer.iterations.numpy()) >= 3 * _BATCHES  # of 4, without those after the copy
    evaluated, predicted = model.evaluate(x, y, **sizes), model.predict(x, **sizes)
    wait_until(lambda: is_copied(strategy), _SECONDS, "the copies")
    callback = Loses("evaluate", folder)
    assert model.evaluate(x, y, callbacks=[callback], **sizes) == evaluated
    assert callback.begun == 2
    callback = Loses("predict", folder)
    assert (model.predict(x, callbacks=[callback], **sizes) == predicted).all()
    assert callback.begun == 2
    model.train_on_batch(x, y)
    lose("train_on_batch", folder)
    try:
        model.train_on_batch(x, y)
    except tfs.ServerLostError as error:
        print(f"train_on_batch ended with {error}", flush=True)
    history = model.fit(x, y, **sizes)
    print(f"trained with a loss of {history.history['loss'][0]}, before {evaluated[0]}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
