"""A task of test_returning_servers.py: the same `fit` twice, and a server is lost in the second one.

python -m tests.cluster.parameter_server.returning_synchronous_worker STEPS LOOP
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf

import tf_strategies as tfs

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1

_EPOCHS = 2
_STEP_SECONDS = 0.02
_MOST_STEPS = 2000


class Steps(keras.callbacks.Callback):
    """Prints each step."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        print(f"step {batch + 1} at {time.time():.3f}", flush=True)
        time.sleep(_STEP_SECONDS)


def trained(
    strategy: tfs.SyncReplicasStrategy, steps: int, *callbacks: Any, eagerly: bool
) -> list[np.ndarray]:
    """Returns the weights after a `fit`, its logs and the slots of the optimizer."""
    keras.utils.set_random_seed(5)
    with strategy.scope():
        layers = [keras.layers.Dense(64), keras.layers.BatchNormalization()]
        if hasattr(keras, "random"):  # the random numbers of Keras 2 cannot be repeated
            layers.append(keras.layers.Dropout(0.3))
        model = keras.Sequential([keras.layers.Input((8,)), *layers, keras.layers.Dense(1)])
        model.compile("adam", "mse", metrics=["mae"], run_eagerly=eagerly)
    rows = np.random.RandomState(0).randn(7 * steps - 2, 8).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((rows, rows.sum(axis=1, keepdims=True)))
    # Validation begins again after a loss. With `shuffle` it would change the order of the next epoch.
    validation, data = data.batch(7).take(3), data.shuffle(50).batch(7)
    rates = keras.callbacks.LearningRateScheduler(lambda epoch, rate: 0.01 / (epoch + 1))
    fitted = {"epochs": _EPOCHS, "verbose": 0, "validation_data": validation}
    history = model.fit(data, callbacks=[rates, *callbacks], **fitted).history
    model.fit(validation, verbose=0)  # by the same function
    # The rate in the logs of worker 1 can be that of the next epoch.
    logs = [np.asarray(history[name]) for name in sorted(history) if name not in ("learning_rate", "lr")]
    return [*model.get_weights(), *logs, np.asarray(model.optimizer.iterations)]


def main(steps: str, how: str) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    strategy = tfs.SyncReplicasStrategy(replicas=2, options=tfs.ParameterServerOptions(timeout=60))
    eagerly = how == "eager"
    plain = trained(strategy, int(steps), eagerly=eagerly)
    print("now", flush=True)
    disturbed = trained(strategy, int(steps), Steps(), eagerly=eagerly)
    difference = max(float(np.abs(one - other).max()) for one, other in zip(plain, disturbed))
    print(f"ended with a difference of {difference}, {plain[-1]} and {disturbed[-1]} steps", flush=True)
    train_on_batches(strategy)


def train_on_batches(strategy: tfs.SyncReplicasStrategy) -> None:
    """Takes steps that cannot be repeated, until a server is lost."""
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    rows = np.ones((6, 8), np.float32)
    for step in range(_MOST_STEPS):
        model.train_on_batch(rows, rows[:, :1])
        print(f"batch {step + 1}", flush=True)
        time.sleep(_STEP_SECONDS)


if __name__ == "__main__":
    main(*sys.argv[1:])
