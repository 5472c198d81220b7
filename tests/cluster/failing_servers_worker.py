"""A task of test_parameter_server_failures.py: `fit`, one step a line, until it is done or something ends it.

python -m tests.cluster.failing_servers_worker async|sync STEPS TIMEOUT [RANK:STEP]
python -m tests.cluster.failing_servers_worker slowly STEPS TIMEOUT

The worker of the rank kills itself when it has taken that step. An error is printed with its time, and then ends the program.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf

import tf_strategies as tfs

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1

_KINDS = {"async": tfs.AsyncParameterServerStrategy, "sync": tfs.SyncReplicasStrategy}
_SLEEP = 0.02


class Steps(keras.callbacks.Callback):
    """Prints each step, and may end this process with SIGKILL at one."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self._last = last

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        print(f"step {batch + 1} at {time.monotonic():.3f}", flush=True)
        if batch + 1 == self._last:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(_SLEEP)


def every_worker_has(rows: tuple) -> tf.data.Dataset:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf.data.Dataset.from_tensors(rows).repeat().with_options(options)


def train(kind: str, steps: int, timeout: float, victim: str) -> None:
    options = tfs.ParameterServerOptions(timeout=timeout)
    strategy = _KINDS[kind](options=options)
    print("connected", flush=True)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(4)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss)
    rank, _, last = victim.partition(":")
    callback = Steps(int(last) if rank and int(rank) == strategy.rank else 0)
    data = every_worker_has((np.ones([12, 8], np.float32), np.ones([12], np.int32)))
    model.fit(data, steps_per_epoch=steps, epochs=1, verbose=0, callbacks=[callback])
    if kind == "async":
        print(f"counted {strategy.staleness_stats().count} {int(model.optimizer.iterations.numpy())}")
    else:
        print(f"counted {strategy.gradient_counts()} {int(model.optimizer.iterations.numpy())}")


def apply_slowly(steps: int, timeout: float) -> None:
    """Steps that the last worker applies: at once on the first server, and on the second, which says so, for two seconds."""
    strategy = tfs.SyncReplicasStrategy(options=tfs.ParameterServerOptions(timeout=timeout))
    with strategy.scope():
        quick, slow = (tf.Variable(tf.zeros([4]), name=name) for name in ("quick", "slow"))

    def add(variable: tf.Variable, gradient: tf.Tensor) -> tf.Operation:
        return variable.assign_add(gradient)

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

    for step in range(steps):
        time.sleep(strategy.rank * 0.5)
        train()
        print(f"step {step + 1} quick={quick.numpy()} slow={slow.numpy()}", flush=True)


def main(kind: str, steps: str, timeout: str, victim: str = "") -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    if kind == "slowly":
        apply_slowly(int(steps), float(timeout))
        return
    try:
        train(kind, int(steps), float(timeout), victim)
    except Exception as error:
        named = isinstance(error, tfs.ServerLostError)
        print(f"ended at {time.monotonic()} lost={named} {type(error).__name__}: {error}", flush=True)
        raise


if __name__ == "__main__":
    main(*sys.argv[1:])
