"""Resumes training that was killed, with `tfs.callbacks.BackupAndRestore`.

    tfs-run --workers 2 examples/04_checkpoint_and_resume.py --stop-after 70
    tfs-run --workers 2 examples/04_checkpoint_and_resume.py

The first command trains a small network on scikit-learn's handwritten digits; after 70 of its 150 steps
worker 1 kills itself (SIGKILL), and the other worker ends with an error that names it. The second command
finds the file that the chief saves every 20 steps, and continues:

    steps of this run                     90
    test accuracy                         0.9611
    weights                               9194d0b668daced1

`weights` is a digest of all weights. It is the same if you repeat both commands with another number after
--stop-after, or without it: nothing is lost, not even the order of the data. Accuracy and digest depend on
the version of TensorFlow. Each command takes half a minute on two cores.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tf_strategies as tfs


class StepCounter(keras.callbacks.Callback):
    """Counts steps; kills this process, without a warning, after so many."""

    def __init__(self, kill_after: int) -> None:
        super().__init__()
        self.steps = 0
        self.kill_after = kill_after

    def on_train_batch_end(self, batch, logs=None) -> None:
        self.steps += 1
        if self.steps == self.kill_after:
            os.kill(os.getpid(), signal.SIGKILL)


def build_model() -> keras.Model:
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(keras.optimizers.Adam(2e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument(
        "--directory", default="/tmp/tf_strategies_example_04", help="the chief's; need not be shared"
    )
    parser.add_argument("--stop-after", type=int, default=0, help="steps after which worker 1 kills itself")
    arguments = parser.parse_args()
    keras.utils.set_random_seed(1)  # the same on all workers and in each run: the same shuffles
    digits = load_digits()
    x_train, x_test, y_train, y_test = train_test_split(
        (digits.data / 16.0).astype("float32"), digits.target, test_size=360, random_state=0
    )

    strategy = tfs.CollectiveAllReduceStrategy()
    with strategy.scope():
        model = build_model()
    counter = StepCounter(arguments.stop_after if strategy.rank == min(1, strategy.size - 1) else 0)
    backup = tfs.callbacks.BackupAndRestore(arguments.directory, save_freq=20)
    model.fit(
        x_train, y_train, batch_size=96, epochs=arguments.epochs, verbose=0, callbacks=[backup, counter]
    )
    _, accuracy = model.evaluate(x_test, y_test, batch_size=120, verbose=0)

    if strategy.rank == 0:
        digest = hashlib.blake2b(b"".join(weight.tobytes() for weight in model.get_weights()))
        print(f"{'steps of this run':<38}{counter.steps}")
        print(f"{'test accuracy':<38}{accuracy:.4f}")
        print(f"{'weights':<38}{digest.hexdigest()[:16]}")


if __name__ == "__main__":
    main()
