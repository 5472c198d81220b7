"""Trains one model with Keras `fit` on three workers. An all-reduce by binary blocks adds up their gradients.

    tfs-run --workers 3 examples/02_fit_three_workers.py

A small convolutional network learns scikit-learn's handwritten digits. Every worker runs this script and gets
a third of every batch. All end with the same weights, bit by bit. The chief prints a line for each epoch, and
then a table:

    workers                               3
    test accuracy                         0.9833
    largest weight difference             0
    bytes sent per worker and step        232,474
    steps per second                      87.5
    algorithm                             binary_blocks
    transport                             cma+sysv (same host)

The last four lines depend on the machine. It takes less than a minute on two cores. On several hosts, set
TF_CONFIG on each instead of using tfs-run.
"""

from __future__ import annotations

import argparse
import time

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tf_strategies as tfs


class EpochClock(keras.callbacks.Callback):
    """Seconds of each epoch; the first includes the building of graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list = []

    def on_epoch_begin(self, epoch, logs=None) -> None:
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None) -> None:
        self.seconds.append(time.perf_counter() - self._start)


def build_model() -> keras.Model:
    model = keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(2e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def largest_difference(strategy: tfs.CollectiveAllReduceStrategy, model: keras.Model) -> float:
    """The largest difference of any weight between any two workers."""
    weights = np.concatenate([weight.ravel() for weight in model.get_weights()])
    everyone = strategy.gather(tf.constant(weights[np.newaxis]), axis=0).numpy()
    return float((everyone.max(axis=0) - everyone.min(axis=0)).max())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=96, help="of all workers together")
    parser.add_argument("--algorithm", default="binary_blocks")
    arguments = parser.parse_args()
    keras.utils.set_random_seed(1)  # the same on all workers, so that they shuffle alike and split each batch
    digits = load_digits()
    x_train, x_test, y_train, y_test = train_test_split(
        (digits.images[..., np.newaxis] / 16.0).astype("float32"),
        digits.target,
        test_size=360,
        random_state=0,
    )

    strategy = tfs.CollectiveAllReduceStrategy(tfs.CommunicationOptions(algorithm=arguments.algorithm))
    chief = strategy.rank == 0
    with strategy.scope():
        model = build_model()
    clock = EpochClock()
    before = strategy.communication_stats()
    model.fit(
        x_train,
        y_train,
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        verbose=2 if chief else 0,
        callbacks=[clock],
    )
    after = strategy.communication_stats()
    _, accuracy = model.evaluate(x_test, y_test, batch_size=120, verbose=0)
    difference = largest_difference(strategy, model)

    if chief:
        steps = -(-len(x_train) // arguments.batch_size)
        timed = clock.seconds[1:] or clock.seconds
        sent = (after.bytes_sent - before.bytes_sent) / (steps * arguments.epochs)
        for name, value in (
            ("workers", strategy.size),
            ("test accuracy", f"{accuracy:.4f}"),
            ("largest weight difference", f"{difference:g}"),
            ("bytes sent per worker and step", f"{sent:,.0f}"),
            ("steps per second", f"{steps * len(timed) / sum(timed):.1f}"),
            ("algorithm", after.algorithms[0] if after.algorithms else "none"),
            ("transport", after.transport),
        ):
            print(f"{name:<38}{value}")


if __name__ == "__main__":
    main()
