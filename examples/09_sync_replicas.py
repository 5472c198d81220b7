"""Trains synchronously on a parameter server, without waiting for the slowest of three workers.

    tfs-run --workers 3 --ps 1 examples/09_sync_replicas.py --backup-workers 1 --slow-seconds 0.2

A small network learns handwritten digits (scikit-learn's `load_digits`). The last worker sleeps in every
step. With one backup worker, the first two gradients of a step are averaged and applied, and the third, which
is late, is dropped. Without backup workers (`--backup-workers 0`) all workers wait for it, 0.228 seconds in
each step, and the result is that of one process. The chief prints a line for each epoch, and then a table:

    workers, of which backups                 3, 1
    gradients counted, by worker              116, 118, 7
    gradients dropped, by worker              3, 0, 1
    seconds per step                          0.061
    test accuracy                             0.95
"""

from __future__ import annotations

import argparse
import time

import keras
import numpy as np
from sklearn.datasets import load_digits

import tf_strategies as tfs


class Sleep(keras.callbacks.Callback):
    """Makes this worker slow."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def on_train_batch_begin(self, batch, logs=None):
        time.sleep(self._seconds)


def build_model() -> keras.Model:
    model = keras.Sequential(
        [keras.layers.Input((64,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.2, momentum=0.9), loss, metrics=["accuracy"])
    return model


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=96, help="of all workers together")
    parser.add_argument("--backup-workers", type=int, default=0)
    parser.add_argument(
        "--slow-seconds", type=float, default=0.0, help="that the last worker sleeps in a step"
    )
    arguments = parser.parse_args()
    keras.utils.set_random_seed(
        1
    )  # the same on all workers, so that they take their shares of the same batches
    strategy = tfs.SyncReplicasStrategy(backup_workers=arguments.backup_workers)
    # A server never comes here: it serves, and ends when the workers are done.

    chief, last = strategy.rank == 0, strategy.rank == strategy.size - 1
    digits = load_digits()
    order = np.random.default_rng(1).permutation(len(digits.target))
    images, labels = (digits.data[order] / 16).astype("float32"), digits.target[order].astype("int64")
    with strategy.scope():
        model = build_model()
    start = time.monotonic()
    model.fit(
        images[:1440],
        labels[:1440],
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        verbose=2 if chief else 0,
        callbacks=[Sleep(arguments.slow_seconds)] if last and arguments.slow_seconds else [],
    )
    seconds = time.monotonic() - start
    _, accuracy = model.evaluate(images[1440:], labels[1440:], verbose=0)
    counts = strategy.gradient_counts()

    if chief:
        for name, value in (
            ("workers, of which backups", f"{strategy.size}, {arguments.backup_workers}"),
            ("gradients counted, by worker", ", ".join(map(str, counts.counted))),
            ("gradients dropped, by worker", ", ".join(map(str, counts.dropped))),
            ("seconds per step", f"{seconds / int(model.optimizer.iterations):.3f}"),
            ("test accuracy", f"{accuracy:.2f}"),
        ):
            print(f"{name:<42}{value}")


if __name__ == "__main__":
    main()
