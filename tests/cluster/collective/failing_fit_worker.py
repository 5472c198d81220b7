"""One worker of test_failures.py: `fit` on endless data, with one thing different on worker 1 when asked for.

Prints its pid, each step, and how it ended: "ended at <monotonic seconds> with <class>: <message>", exit status 3; a worker
that makes a mistake of its own ends with the traceback, as a script does.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.support.endings import ended_with

_DIFFERENCES = (
    "none",
    "options",
    "model",
    "batch",
    "features",
    "raises",
    "runs_out_of_memory",
    "exits",
    "raises_stop_iteration",
)
_UNCAUGHT = ("raises", "runs_out_of_memory")
_MISBEHAVING = 1
HEARTBEAT_SECONDS = 7.0


class Steps(tf.keras.callbacks.Callback):
    """Prints each step; at step 10 does what this worker was told to do wrong."""

    def __init__(self, difference: str) -> None:
        super().__init__()
        self._difference = difference

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        print("step", batch, flush=True)
        if batch == 10 and self._difference == "raises":
            Path(os.fsdecode(b"caf\xe9.png")).read_bytes()  # a name that is not UTF-8
        if batch == 10 and self._difference == "runs_out_of_memory":
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)
            self.model.predict(np.ones([1 << 22, 8], np.float32), batch_size=1 << 22, verbose=0)
        if batch == 10 and self._difference in ("exits", "raises_stop_iteration"):
            print("goes alone", flush=True)
            raise SystemExit(0) if self._difference == "exits" else StopIteration


def dataset(batch: int, features: int) -> tf.data.Dataset:
    rows = np.ones([batch, features], np.float32), np.ones([batch], np.int32)
    data = tf.data.Dataset.from_tensors(rows).repeat()
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return data.with_options(options)


def train(difference: str) -> None:
    mebibytes = 1 if difference == "options" else 2
    options = tfs.CommunicationOptions(
        bytes_per_pack=mebibytes << 20, timeout=60, heartbeat_timeout=HEARTBEAT_SECONDS
    )
    strategy = tfs.CollectiveAllReduceStrategy(options)
    print("connected", flush=True)
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Dense(33 if difference == "model" else 32, activation="relu"),
                tf.keras.layers.Dense(10),
            ]
        )
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.SGD(0.01), loss)
    data = dataset(24 if difference == "batch" else 12, 9 if difference == "features" else 8)
    model.fit(data, steps_per_epoch=100_000, epochs=1, verbose=0, callbacks=[Steps(difference)])


def main() -> int:
    difference = sys.argv[1]
    if difference not in _DIFFERENCES:
        raise SystemExit(f"unknown difference {difference!r}")
    index = int(os.environ["TF_CONFIG"].partition('"index":')[2].strip(" }"))
    print("pid", os.getpid(), flush=True)
    try:
        train(difference if index == _MISBEHAVING else "none")
    except Exception as error:
        if index == _MISBEHAVING and difference in _UNCAUGHT:
            raise
        return ended_with(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
