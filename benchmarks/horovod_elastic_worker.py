"""One worker of Horovod Elastic in benchmarks.elastic: the `fit` of elastic_worker.py, which commits after each step.

`horovodrun` starts it, in the environment of `make bench-peers`.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import horovod.tensorflow.keras as hvd
import numpy as np
import tensorflow as tf

from benchmarks.elastic_worker import ROWS_A_WORKER, Steps

ALONE = "127.0.0.1"
"""The host of the worker that is lost."""


class Place(tf.keras.callbacks.Callback):
    """Keeps the number of finished batches in a state."""

    def __init__(self, state: hvd.elastic.KerasState) -> None:
        super().__init__()
        self._state, self._first = state, state.batch

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self._state.batch = self._first + batch + 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--kill-at", type=int, default=-1)
    given = parser.parse_args()
    tf.keras.utils.set_random_seed(1)
    hvd.init()
    dense = [tf.keras.layers.Dense(given.width, activation="relu") for _ in range(2)]
    model = tf.keras.Sequential([tf.keras.layers.Input([given.width]), *dense, tf.keras.layers.Dense(10)])
    optimizer = hvd.DistributedOptimizer(tf.keras.optimizers.Adam(1e-3))
    model.compile(optimizer, "mse", metrics=["mae"])
    x = np.random.RandomState(0).randn(ROWS_A_WORKER, given.width).astype(np.float32)
    data = tf.data.Dataset.from_tensors((x, np.zeros([ROWS_A_WORKER, 10], np.float32))).repeat()
    optimizer.build(model.trainable_variables)
    is_alone = os.environ["HOROVOD_HOSTNAME"] == ALONE  # Horovod gives up the host of a lost worker
    number = "alone" if is_alone else str(hvd.local_rank())
    kill_at = given.kill_at if is_alone else -1
    steps = Steps(given.folder / f"steps{number}", hvd.size, kill_at, given.folder / "fault")
    state = hvd.elastic.KerasState(model, batch=0, epoch=0)

    @hvd.elastic.run
    def train(state: hvd.elastic.KerasState) -> None:
        first = steps.first = state.batch
        callbacks = [steps, Place(state), hvd.elastic.CommitStateCallback(state, batches_per_commit=1)]
        model.fit(data, steps_per_epoch=given.steps - first, epochs=1, verbose=0, callbacks=callbacks)

    train(state)


if __name__ == "__main__":
    main()
