"""Loses two of four workers, and ends with the weights of a run that lost none.

    tfs-run --workers 4 --min-workers 2 examples/14_elastic.py

Four workers train a small network on scikit-learn's handwritten digits. After 40 of the 150 steps worker 3
kills itself (SIGKILL), and after 90 steps the chief does. The other two train on, and print:

    workers at the end                    2
    test accuracy                         0.9500
    largest difference of a weight        1e-07

The last line compares the weights with those of one process that trains on the same batches. Stop the
workers yourself with --kill none and `kill -9`. It takes 15 seconds on two cores.
"""

from __future__ import annotations

import argparse
import os
import signal

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tf_strategies as tfs


class Kill(keras.callbacks.Callback):
    """Kills this process, without a warning, after so many steps."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.steps_left = after

    def on_train_batch_end(self, batch, logs=None) -> None:
        self.steps_left -= 1
        if self.steps_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def build_model() -> keras.Model:
    keras.utils.set_random_seed(1)
    model = keras.Sequential(
        [
            keras.layers.Input((64,)),
            keras.layers.Dense(64, activation="relu"),
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
        "--kill", default="3:40,0:90", help="workers that kill themselves, and after how many steps; or none"
    )
    arguments = parser.parse_args()
    digits = load_digits()
    x_train, x_test, y_train, y_test = train_test_split(
        (digits.data / 16.0).astype("float32"), digits.target, test_size=360, random_state=0
    )
    how = {
        "x": x_train,
        "y": y_train,
        "batch_size": 96,
        "shuffle": False,
        "epochs": arguments.epochs,
        "verbose": 0,
    }

    strategy = tfs.CollectiveAllReduceStrategy(elastic=tfs.Elastic(min_workers=2))
    with strategy.scope():
        model = build_model()
    kill = {} if arguments.kill == "none" else dict(each.split(":") for each in arguments.kill.split(","))
    model.fit(**how, callbacks=[Kill(int(kill.get(str(strategy.rank), 0)))])
    _, accuracy = model.evaluate(x_test, y_test, batch_size=120, verbose=0)

    if strategy.is_chief:
        print(f"{'workers at the end':<38}{strategy.size}")
        print(f"{'test accuracy':<38}{accuracy:.4f}")
        strategy.close()  # models are made outside of its scope from here on
        alone = build_model()
        alone.fit(**how)
        pairs = zip(model.get_weights(), alone.get_weights())
        difference = max(float(np.abs(one - other).max()) for one, other in pairs)
        print(f"{'largest difference of a weight':<38}{difference:.0e}")


if __name__ == "__main__":
    main()
