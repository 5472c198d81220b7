"""One of two workers of test_step_metrics.py: trains until a file says that its metrics were read. Worker 1 is slow.

python -m tests.cluster.callbacks.step_worker FOLDER PORT
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tf_strategies.keras.hooks import Hooks

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1
ROWS, FEATURES = 64, 256
INTERVAL = 0.05
SLOW, SLEEP_SECONDS = 1, 0.1


class Pauses(Hooks):
    """Slows one worker down, and ends training at the end of an epoch."""

    def __init__(self, slow: bool, until: Path) -> None:
        super().__init__()
        self._slow = slow
        self._until = until

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        if self._slow:
            time.sleep(SLEEP_SECONDS)

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        if self._until.exists():
            self.model.stop_training = True


def main(folder: Path, port: int) -> None:
    strategy = tfs.CollectiveAllReduceStrategy(tfs.CommunicationOptions(timeout=60))
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input([FEATURES]), keras.layers.Dense(FEATURES)])
        model.compile("sgd", "mse")
    x = np.ones([ROWS, FEATURES], np.float32)
    data = tf.data.Dataset.from_tensors((x, x)).repeat(1_000_000)
    callbacks = [
        tfs.callbacks.StepTensorBoard(folder / "logs", interval=INTERVAL),
        tfs.callbacks.PrometheusEndpoint(port, interval=INTERVAL),
        Pauses(strategy.rank == SLOW, folder / "read"),
    ]
    model.fit(data, steps_per_epoch=5, epochs=10_000, verbose=0, callbacks=callbacks)
    print("trained", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
