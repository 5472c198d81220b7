"""Evaluates checkpoints while training on parameter servers, and resumes training that was killed.

    tfs-run --workers 2 --ps 1 --evaluator examples/10_evaluator.py

Two workers learn handwritten digits (scikit-learn's `load_digits`) asynchronously. The chief saves the
weights after each epoch. The evaluator, a process that does not train, evaluates each checkpoint, and ends
when the server has ended. It prints:

    evaluated 1.weights.h5 of step 10: accuracy 0.296919, loss 1.97041 (0.9 s)
    evaluated 5.weights.h5 of step 107: accuracy 0.960784, loss 0.183109 (0.2 s)
    evaluated 8.weights.h5 of step 144: accuracy 0.969188, loss 0.155941 (0.3 s)
    last evaluation                           0.97

It misses some of these short epochs. `tensorboard --logdir` with the folder shows the results as curves over
steps. Stop everything (Ctrl-C) and start it again: training continues in the same epoch, with any number of
workers and servers. It takes half a minute on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits

import tf_strategies as tfs


def build_model() -> keras.Model:
    model = keras.Sequential(
        [keras.layers.Input((64,)), keras.layers.Dense(128, "relu"), keras.layers.Dense(10)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), loss, metrics=["accuracy"])
    return model


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=80, help="of each worker")
    parser.add_argument("--directory", type=Path, default=Path(tempfile.gettempdir(), "tf_strategies-digits"))
    arguments = parser.parse_args()
    keras.utils.set_random_seed(1)
    digits = load_digits()
    order = np.random.default_rng(1).permutation(len(digits.target))
    images, labels = (digits.data[order] / 16).astype("float32"), digits.target[order].astype("int64")
    followed = arguments.directory / "weights"

    strategy = tfs.AsyncParameterServerStrategy()
    with strategy.scope():
        model = build_model()

    if json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {}).get("type") == "evaluator":
        logs = tfs.SidecarEvaluator(model, (images[1440:], labels[1440:]), followed).start()
        print(f"{'last evaluation':<42}{logs['accuracy']:.2f}")
        return

    model.fit(
        images[:1440],
        labels[:1440],
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        verbose=0,
        callbacks=[
            tfs.callbacks.BackupAndRestore(arguments.directory / "backup"),
            keras.callbacks.ModelCheckpoint(followed / "{epoch}.weights.h5", save_weights_only=True),
        ],
    )
    _, accuracy = model.evaluate(images[1440:], labels[1440:], verbose=0)
    if strategy.rank == 0:
        print(f"{'test accuracy':<42}{accuracy:.2f}")


if __name__ == "__main__":
    main()
