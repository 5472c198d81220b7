"""Trains in one process, without a cluster. The same script later runs on many nodes.

    python examples/01_single_process.py

Trains a small network on scikit-learn's handwritten digits with Keras `fit`. Without TF_CONFIG it uses no
network, and does not load the native library. It takes about 10 seconds and ends with

    test accuracy 0.97 on 1 replica of 1 worker
"""

from __future__ import annotations

import argparse

import keras
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tf_strategies as tfs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=15)
    arguments = parser.parse_args()
    keras.utils.set_random_seed(1)
    digits = load_digits()
    x_train, x_test, y_train, y_test = train_test_split(
        (digits.data / 16.0).astype("float32"), digits.target, test_size=360, random_state=0
    )

    strategy = tfs.CollectiveAllReduceStrategy()
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.layers.Input((64,)),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(10, activation="softmax"),
            ]
        )
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(x_train, y_train, batch_size=32, epochs=arguments.epochs, verbose=2)
    _, accuracy = model.evaluate(x_test, y_test, batch_size=120, verbose=0)
    print(
        f"test accuracy {accuracy:.2f} on {strategy.num_replicas_in_sync} replica of {strategy.size} worker"
    )


if __name__ == "__main__":
    main()
