"""A task of test_returning_servers.py: `fit` that goes on when a server has started again.

python -m tests.cluster.parameter_server.returning_server_worker STEPS OPTIMIZER TRANSPORT
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.parameter_server.failing_servers_worker import every_worker_has

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1

_STEP_SECONDS = 0.02


class Steps(keras.callbacks.Callback):
    """Prints each step, and how far each kernel has moved from its first value."""

    def __init__(self, model: tf.keras.Model) -> None:
        super().__init__()
        self._first = [layer.kernel.numpy() for layer in model.layers]

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        kernels = [layer.kernel.numpy() for layer in self.model.layers]
        moved = " ".join(f"{np.linalg.norm(now - first):.4f}" for now, first in zip(kernels, self._first))
        print(f"step {batch + 1} at {time.time():.3f} moved {moved}", flush=True)
        time.sleep(_STEP_SECONDS)


def main(steps: str, optimizer: str, transport: str) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    options = tfs.ParameterServerOptions(timeout=60, transport=transport)
    strategy = tfs.AsyncParameterServerStrategy(replicas=2, options=options)
    with strategy.scope():
        dense = [keras.layers.Dense(256), keras.layers.Dense(512), keras.layers.Dense(1)]
        model = keras.Sequential([keras.layers.Input((8,)), *dense])
        model.compile(optimizer, "mse", metrics=["mae"])
    rows = np.random.RandomState(0).randn(12, 8).astype(np.float32)
    data = every_worker_has((rows, rows.sum(axis=1, keepdims=True)))
    fitted = {"steps_per_epoch": int(steps), "epochs": 2, "verbose": 0, "validation_data": data.take(2)}
    model.fit(data, callbacks=[Steps(model)], **fitted)
    print(f"ended with {int(model.optimizer.iterations.numpy())} updates", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
