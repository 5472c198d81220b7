"""One worker of benchmarks.large_batch, as TF_CONFIG says: trains a task by each recipe, one after the other.

The name of a training is seed/recipe/batch, or seed/recipe/batch/rate for another rate than that of BEST_RATES.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path
from typing import Any, Callable, NamedTuple

import keras
import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from benchmarks import learning_worker
from benchmarks.large_batch_rates import BEST_RATES
from benchmarks.trainings import run_trainings

MOMENTUM = 0.9
DECAY = 5e-4
Schedule = keras.optimizers.schedules.LearningRateSchedule


class Task(NamedTuple):
    """What is learned.

    Attributes:
        train, test: images and labels.
        make: makes the model.
        reference: the batch for which `base_rate` was found.
        base_rate: of SGD with Nesterov's momentum.
        rows_at_once: the rows of all workers that a step computes; larger batches are accumulated from several steps, so that
            the statistics of batch normalization are those of as many rows whatever the batch. None: the whole batch.
        epochs: how often the training data are seen.
        warmup_epochs: those at the beginning in which the rate grows.
    """

    train: tuple
    test: tuple
    make: Callable[[], Any]
    reference: int
    base_rate: float
    rows_at_once: int | None
    epochs: int
    warmup_epochs: int


def digits(images: Path) -> Task:
    """Handwritten digits, 1,437 images of 8 × 8; a convolutional network of 38,000 weights without batch normalization."""
    del images  # they come with scikit-learn
    task = learning_worker.digits()
    return Task(
        task.train, task.test, lambda: keras.Sequential(task.layers()),
        reference=16, base_rate=0.01, rows_at_once=None, epochs=30, warmup_epochs=5,
    )  # fmt: skip


def fashion(images: Path) -> Task:
    """Fashion-MNIST, 12,288 of its images and all that test; a residual network of 78,000 weights with batch normalization."""
    train, test = (_read_images(images, name) for name in ("train", "t10k"))
    few = 12_288
    return Task(
        (train[0][:few], train[1][:few]), test, _residual_network,
        reference=64, base_rate=0.05, rows_at_once=64, epochs=20, warmup_epochs=3,
    )  # fmt: skip


TASKS: dict[str, Callable[[Path], Task]] = {"digits": digits, "fashion": fashion}


def _read_images(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    pixels, labels = (
        np.frombuffer(gzip.decompress((folder / f"{name}-{kind}-ubyte.gz").read_bytes())[header:], np.uint8)
        for kind, header in (("images-idx3", 16), ("labels-idx1", 8))
    )
    return (pixels.reshape(-1, 28, 28, 1) / 255.0).astype("float32"), labels.astype("int32")


def _residual_network() -> Any:
    """A stem and three blocks; the last γ of each block begins at 0, as Goyal et al. advise in §5.1."""

    def convolution(x: Any, filters: int, stride: int = 1, size: int = 3) -> Any:
        return keras.layers.Conv2D(filters, size, stride, padding="same", use_bias=False)(x)

    def block(x: Any, filters: int, stride: int) -> Any:
        y = keras.layers.BatchNormalization()(convolution(x, filters, stride))
        y = convolution(keras.layers.ReLU()(y), filters)
        y = keras.layers.BatchNormalization(gamma_initializer="zeros")(y)
        if stride > 1:
            x = keras.layers.BatchNormalization()(convolution(x, filters, stride, size=1))
        return keras.layers.ReLU()(keras.layers.Add()([x, y]))

    inputs = keras.layers.Input((28, 28, 1))
    x = keras.layers.ReLU()(keras.layers.BatchNormalization()(convolution(inputs, 16, 2)))
    for filters, stride in ((16, 2), (32, 2), (64, 2)):
        x = block(x, filters, stride)
    return keras.Model(inputs, keras.layers.Dense(10)(keras.layers.GlobalAveragePooling2D()(x)))


class Recipe(NamedTuple):
    """How a large batch is trained.

    Attributes:
        optimizer: makes it, of a schedule and other arguments.
        scales: whether the rate grows with the batch. If not, it is the base rate, or that of BEST_RATES.
        warmup: "gradual", "constant" or "".
    """

    optimizer: Callable[..., Any]
    scales: bool
    warmup: str


def _sgd(rate: Schedule, **options: Any) -> Any:
    return tfs.optimizers.SGD(rate, MOMENTUM, nesterov=True, weight_decay=DECAY, **options)


def _lars(rate: Schedule, **options: Any) -> Any:
    return tfs.optimizers.LARS(rate, MOMENTUM, weight_decay=DECAY, trust_coefficient=0.01, **options)


def _lamb(rate: Schedule, **options: Any) -> Any:
    return tfs.optimizers.LAMB(rate, weight_decay=DECAY, **options)


RECIPES = {
    "no_scaling": Recipe(_sgd, scales=False, warmup=""),
    "no_warmup": Recipe(_sgd, scales=True, warmup=""),
    "constant_warmup": Recipe(_sgd, scales=True, warmup="constant"),
    "gradual_warmup": Recipe(_sgd, scales=True, warmup="gradual"),
    "lars": Recipe(_lars, scales=False, warmup="gradual"),
    "lamb": Recipe(_lamb, scales=False, warmup="gradual"),
    "tuned_nesterov": Recipe(_sgd, scales=False, warmup="gradual"),
}


def schedule(task: Task, recipe: Recipe, batch: int, rate: float | None) -> Schedule:
    """The rate of each step. Steps are what the optimizer counts: with accumulation, several for an update."""
    rows = task.rows_at_once or batch
    steps_per_epoch = -(-len(task.train[0]) // rows)
    warmup = task.warmup_epochs * steps_per_epoch if recipe.warmup else 0
    peak = rate or task.base_rate * (batch / task.reference if recipe.scales else 1.0)
    return tfs.schedules.LinearScalingWarmup(
        peak,
        batch,
        global_batch=batch,
        warmup_steps=warmup,
        mode=recipe.warmup or "gradual",
        start_rate=task.base_rate if recipe.scales else 0.0,
        after=tfs.schedules.PolynomialDecay(peak, task.epochs * steps_per_epoch - warmup),
    )


def train(name: str, task: Task, training: str) -> dict[str, Any]:
    """Trains once. Returns the accuracy for the test images, and the seconds that it took."""
    seed, kind, batch, *other = training.split("/")
    recipe = RECIPES[kind]
    rate = float(other[0]) if other else BEST_RATES.get((name, kind), {}).get(int(batch))
    at_once = task.rows_at_once or int(batch)
    steps = int(batch) // at_once
    # The same on all workers, so that they shuffle alike and split each batch.
    keras.utils.set_random_seed(int(seed))
    strategy = tfs.CollectiveAllReduceStrategy()
    with strategy.scope():
        model = task.make()
        options = {"gradient_accumulation_steps": steps} if steps > 1 else {}
        optimizer = recipe.optimizer(schedule(task, recipe, int(batch), rate), **options)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer, loss, metrics=["accuracy"])
    # A loss that is not a number stays one, and is scored by what the test makes of it.
    model.fit(*task.train, batch_size=at_once, epochs=task.epochs, verbose=0)
    _, accuracy = model.evaluate(*task.test, batch_size=500, verbose=0)
    strategy.close()
    return {
        "seed": int(seed), "recipe": kind, "batch": int(batch), "rate": rate, "accuracy": accuracy,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=0, help="0: as many as the task has")
    parser.add_argument("--trainings", nargs="+", required=True, help="seed/recipe/batch[/rate], in order")
    parser.add_argument("--results", type=Path, required=True)
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    task = TASKS[arguments.task](arguments.images)
    epochs = arguments.epochs or task.epochs
    task = task._replace(epochs=epochs, warmup_epochs=min(task.warmup_epochs, epochs // 2))
    run_trainings(
        arguments.trainings, arguments.results, lambda training: train(arguments.task, task, training)
    )


if __name__ == "__main__":
    main()
