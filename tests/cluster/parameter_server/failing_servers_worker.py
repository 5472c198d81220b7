"""A task of test_parameter_server_failures.py: `fit`, one step a line, until it is done or something ends it.

python -m tests.cluster.parameter_server.failing_servers_worker async|sync STEPS TIMEOUT [RANK:STEP [waits:FILE|creates:FILE]]
python -m tests.cluster.parameter_server.failing_servers_worker slowly STEPS TIMEOUT

The worker of the rank kills itself when it has taken that step. A worker that "waits" stops after step 100 until the file exists.
A worker that "creates" it does so when its first step begins. An error is printed with its time, and then ends the program.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.support.processes import wait_until

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1

_KINDS = {"async": tfs.AsyncParameterServerStrategy, "sync": tfs.SyncReplicasStrategy}
_SLEEP = 0.02
PAUSES_AFTER = 100
HEARTBEAT_SECONDS = 7.0
_PAUSE_SECONDS = 80.0


class Steps(keras.callbacks.Callback):
    """Prints each step, and may end this process with SIGKILL at one."""

    def __init__(self, last: int, meeting: str) -> None:
        super().__init__()
        self._last = last
        self._kind, _, path = meeting.partition(":")
        self._file = Path(path)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._kind == "creates" and batch == 0:
            self._file.touch()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        print(f"step {batch + 1} at {time.monotonic():.3f}", flush=True)
        if batch + 1 == self._last:
            os.kill(os.getpid(), signal.SIGKILL)
        if self._kind == "waits" and batch + 1 == PAUSES_AFTER:
            wait_until(self._file.exists, _PAUSE_SECONDS, "the worker that comes back")
        time.sleep(_SLEEP)


def every_worker_has(rows: tuple) -> tf.data.Dataset:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf.data.Dataset.from_tensors(rows).repeat().with_options(options)


def train(kind: str, steps: int, timeout: float, victim: str, meeting: str) -> None:
    options = tfs.ParameterServerOptions(timeout=timeout, heartbeat_timeout=HEARTBEAT_SECONDS)
    strategy = _KINDS[kind](options=options)
    print("connected", flush=True)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(4)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss)
    rank, _, last = victim.partition(":")
    callback = Steps(int(last) if rank and int(rank) == strategy.rank else 0, meeting)
    data = every_worker_has((np.ones([12, 8], np.float32), np.ones([12], np.int32)))
    model.fit(data, steps_per_epoch=steps, epochs=1, verbose=0, callbacks=[callback])
    if kind == "async":
        print(f"counted {strategy.staleness_stats().count} {int(model.optimizer.iterations.numpy())}")
    else:
        print(f"counted {strategy.gradient_counts()} {int(model.optimizer.iterations.numpy())}")


def apply_slowly(steps: int, timeout: float) -> None:
    """Steps that worker 1 applies: at once on the first server, and for two seconds on the second. Both servers say so."""
    strategy = tfs.SyncReplicasStrategy(options=tfs.ParameterServerOptions(timeout=timeout))
    with strategy.scope():
        quick, slow = (tf.Variable(tf.zeros([4]), name=name) for name in ("quick", "slow"))

    def add(variable: tf.Variable, gradient: tf.Tensor) -> tf.Operation:
        with tf.control_dependencies([variable.assign_add(gradient)]):
            return tf.print("the quick server has ended")

    def add_late(variable: tf.Variable, gradient: tf.Tensor) -> tf.Operation:
        with tf.control_dependencies([tf.print("the slow server begins")]):
            end = tf.timestamp() + 2.0
        (passed,) = tf.while_loop(lambda passed: passed < end, lambda passed: [tf.timestamp()], [end - 2.0])
        with tf.control_dependencies([passed]):
            return variable.assign_add(gradient)

    def update(strategy: tf.distribute.Strategy) -> None:
        gradient = tf.fill([4], 1 / strategy.num_replicas_in_sync)
        strategy.extended.update(quick, add, args=(gradient,))
        strategy.extended.update(slow, add_late, args=(gradient,))

    @tf.function(autograph=False)
    def train() -> None:
        strategy.run(lambda: tf.distribute.get_replica_context().merge_call(update))

    membership = strategy._servers.membership
    for step in range(steps):
        if strategy.rank == 1:
            wait_until(lambda: membership.submitters() == [0], 60, "the submission of worker 0")
        train()
        print(f"step {step + 1} quick={quick.numpy()} slow={slow.numpy()}", flush=True)


def main(kind: str, steps: str, timeout: str, victim: str = "", meeting: str = "") -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    if kind == "slowly":
        apply_slowly(int(steps), float(timeout))
        return
    try:
        train(kind, int(steps), float(timeout), victim, meeting)
    except Exception as error:
        named = isinstance(error, tfs.ServerLostError)
        print(f"ended at {time.monotonic()} lost={named} {type(error).__name__}: {error}", flush=True)
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])
