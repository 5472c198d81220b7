"""Trains without end, saying each step, until a worker is lost; then says what was raised and how."""

from __future__ import annotations

import sys

import numpy as np
import tensorflow as tf

import tf_strategies as tfs

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1


class Steps(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None) -> None:
        print(f"step {batch}", flush=True)


def main() -> int:
    strategy = tfs.CollectiveAllReduceStrategy(tfs.CommunicationOptions(timeout=120))
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(50), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    x = np.ones([600_000, 4], "float32")
    try:
        model.fit(x, x[:, :1], batch_size=6, verbose=0, callbacks=[Steps()])
    except tfs.WorkerLostError as error:
        print(f"lost: {error}", flush=True)
        return 7
    return 0


if __name__ == "__main__":
    sys.exit(main())
