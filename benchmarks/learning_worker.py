"""One worker of benchmarks.learning, as TF_CONFIG says: trains a task with each system and each seed, one after the other.

The first worker appends a line of JSON to the results after each training.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, Callable, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import tf_strategies as tfs
from benchmarks.trainings import run_trainings

MOMENTUM = 0.9
LETTERS_A_ROW = 32


def dgc(ratio: float, warmup: int) -> tfs.compression.Compressor:
    return tfs.compression.DeepGradientCompression(
        ratio, momentum=MOMENTUM, clip_norm=5.0, warmup_steps=warmup
    )


# Made for the number of steps of a training.
COMPRESSORS: dict[str, Callable[[int], tfs.compression.Compressor | None]] = {
    "dense": lambda steps: None,
    "half": lambda steps: tfs.compression.Half(),
    "quantize8": lambda steps: tfs.compression.Quantize8(),
    "quantize4": lambda steps: tfs.compression.Quantize4(),
    "ternary": lambda steps: tfs.compression.Ternary(),
    "sign": lambda steps: tfs.compression.SignSGD(),
    "power_sgd_2": lambda steps: tfs.compression.PowerSGD(2),
    "power_sgd_8": lambda steps: tfs.compression.PowerSGD(8),
    "random_k_1%": lambda steps: tfs.compression.RandomK(0.01),
    "top_k_1%": lambda steps: tfs.compression.TopK(0.01),
    "top_k_0.1%": lambda steps: tfs.compression.TopK(0.001),
    "top_k_0.1%_no_feedback": lambda steps: tfs.compression.TopK(0.001, error_feedback=False),
    "dgc_0.1%": lambda steps: dgc(0.001, steps // 8),
    "dgc_0.1%_short_warmup": lambda steps: dgc(0.001, steps // 24),
    "dgc_0.1%_long_warmup": lambda steps: dgc(0.001, steps // 2),
    "dgc_1%": lambda steps: dgc(0.01, steps // 8),
}
LOCAL_STEPS: dict[str, tfs.LocalSGD] = {
    "local_sgd_8": tfs.LocalSGD(sync_every=8),
    "diloco_50": tfs.DiLoCo(sync_every=50),
    "diloco_50_4_bits": tfs.DiLoCo(sync_every=50, quantize=4),
}


class Task(NamedTuple):
    """What is learned.

    Attributes:
        train, test: features and labels.
        layers: makes those of the model.
        rate: of SGD with momentum.
        batch_size: of all workers together.
        epochs: how often the training data are seen.
        score: what is reported, from the test's loss and accuracy.
    """

    train: tuple
    test: tuple
    layers: Callable[[], list]
    rate: float
    batch_size: int
    epochs: int
    score: Callable[[float, float], float]


def digits() -> Task:
    """Handwritten digits, a convolutional network of 38,000 weights; scored by test accuracy."""
    data = load_digits()
    images = (data.images[..., np.newaxis] / 16.0).astype("float32")
    x_train, x_test, y_train, y_test = train_test_split(images, data.target, test_size=360, random_state=0)

    def layers() -> list:
        return [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]

    return Task((x_train, y_train), (x_test, y_test), layers, 0.05, 96, 30, lambda loss, accuracy: accuracy)


def language() -> Task:
    """Python's manual letter by letter, an LSTM of 128 units; scored by the perplexity of a letter in a part held out."""
    text = "\n".join(topics[name] for name in sorted(topics))
    alphabet = sorted(set(text))
    letters = np.searchsorted(np.array(alphabet), np.array(list(text))).astype("int32")
    rows = letters[: (len(letters) - 1) // LETTERS_A_ROW * LETTERS_A_ROW + 1]
    x, y = rows[:-1].reshape(-1, LETTERS_A_ROW), rows[1:].reshape(-1, LETTERS_A_ROW)
    held_out = len(x) // 10

    def layers() -> list:
        return [
            keras.layers.Input((LETTERS_A_ROW,)),
            keras.layers.Embedding(len(alphabet), 32),
            keras.layers.LSTM(128, return_sequences=True),
            keras.layers.Dense(len(alphabet)),
        ]

    train, test = (x[:-held_out], y[:-held_out]), (x[-held_out:], y[-held_out:])
    return Task(train, test, layers, 0.5, 128, 8, lambda loss, accuracy: float(np.exp(loss)))


TASKS = {"digits": digits, "language": language}


def train(task: Task, system: str, seed: int) -> dict[str, Any]:
    keras.utils.set_random_seed(
        seed
    )  # the same on all workers, so that they shuffle alike and split each batch
    steps = -(-len(task.train[0]) // task.batch_size)
    compression = COMPRESSORS[system](steps * task.epochs) if system in COMPRESSORS else None
    strategy = tfs.CollectiveAllReduceStrategy(compression=compression, local_steps=LOCAL_STEPS.get(system))
    with strategy.scope():
        model = keras.Sequential(task.layers())
        # Deep gradient compression brings its own momentum.
        momentum = 0.0 if system.startswith("dgc") else MOMENTUM
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(task.rate, momentum), loss, metrics=["accuracy"])
    before = strategy.communication_stats().bytes_sent
    model.fit(*task.train, batch_size=task.batch_size, epochs=task.epochs, verbose=0)
    total = strategy.communication_stats().bytes_sent - before
    test_loss, accuracy = model.evaluate(*task.test, batch_size=4 * task.batch_size, verbose=0)
    strategy.close()
    return {
        "system": system,
        "seed": seed,
        "score": task.score(test_loss, accuracy),
        "bytes_a_step": total / (steps * task.epochs),
        "weights": 4 * model.count_params(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--trainings", nargs="+", required=True, help="seed/system, in order")
    parser.add_argument("--epochs", type=int, default=0, help="0: as many as the task has")
    parser.add_argument("--results", type=Path, required=True)
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    task = TASKS[arguments.task]()
    task = task._replace(epochs=arguments.epochs or task.epochs)

    def train_named(training: str) -> dict[str, Any]:
        seed, _, system = training.partition("/")
        return train(task, system, int(seed))

    run_trainings(arguments.trainings, arguments.results, train_named)


if __name__ == "__main__":
    main()
