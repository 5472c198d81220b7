"""One worker of benchmarks.elastic: `fit` of an MLP, which writes when each step ended."""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path
from typing import Callable

import numpy as np
import tensorflow as tf

import tf_strategies as tfs

ROWS_A_WORKER = 8
_RARELY = 10


class Steps(tf.keras.callbacks.Callback):
    """Writes "step time workers" for each step. Kills this process before a step, once in the job.

    It runs nothing before the first step, so that a worker that comes back can trace before it joins.

    Attributes:
        first: the number of the first step of this call of `fit`.
    """

    def __init__(self, file: Path, size: Callable[[], int], kill_at: int, marker: Path) -> None:
        super().__init__()
        self._size = size
        self._file, self._kill_at, self._marker = file.open("a", buffering=1), kill_at, marker
        self.first = 0

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        self._file.write(f"{self.first + batch} {time.monotonic()} {self._size()}\n")
        if self.first + batch + 1 == self._kill_at and not self._marker.exists():
            self._marker.write_text(str(time.monotonic()))
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", choices=["plain", "elastic", "rarely", "backup"], required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--width", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rows", type=int, help="of a step; 8 for each worker by default")
    parser.add_argument("--by-process", action="store_true", help="a file of steps for each process")
    parser.add_argument("--kill-at", type=int, default=-1)
    parser.add_argument("--victim", type=int, default=-1)
    parser.add_argument("--save-freq", type=int, default=20)
    given = parser.parse_args()
    tf.keras.utils.set_random_seed(1)
    copy_every = {"elastic": 1, "rarely": _RARELY}.get(given.way)
    elastic = None if copy_every is None else tfs.Elastic(copy_every=copy_every)
    strategy = tfs.CollectiveAllReduceStrategy(elastic=elastic)
    rank, rows = strategy.rank, given.rows or ROWS_A_WORKER * strategy.size
    with strategy.scope():
        dense = [tf.keras.layers.Dense(given.width, activation="relu") for _ in range(2)]
        model = tf.keras.Sequential([tf.keras.layers.Input([given.width]), *dense, tf.keras.layers.Dense(10)])
        model.compile(tf.keras.optimizers.Adam(1e-3), "mse", metrics=["mae"])
    x = np.random.RandomState(0).randn(rows, given.width).astype(np.float32)
    data = tf.data.Dataset.from_tensors((x, np.zeros([rows, 10], np.float32))).repeat()
    kill_at = given.kill_at if rank == given.victim else -1
    file = given.folder / f"steps{os.getpid() if given.by_process else rank}"
    callbacks = [Steps(file, lambda: strategy.size, kill_at, given.folder / "fault")]
    if given.way == "backup":
        callbacks.append(tfs.callbacks.BackupAndRestore(given.folder / "backup", save_freq=given.save_freq))
    model.fit(data, steps_per_epoch=given.steps, epochs=1, verbose=0, callbacks=callbacks)


if __name__ == "__main__":
    main()
