"""One process of benchmarks.parameter_server: a server, a worker, or TensorFlow's coordinator, as TF_CONFIG says.

Those that train write how many steps they have made between two moments of time: results folder/<role><index>.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import tensorflow as tf

INPUTS, CLASSES, BATCH = 784, 10, 32


class Clock(tf.keras.callbacks.Callback):
    """Takes the time at the end of each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[float] = []

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self.ends.append(time.time())


def build_model(widths: list[int]) -> tf.keras.Model:
    layers = [tf.keras.layers.Dense(width, "relu") for width in widths]
    model = tf.keras.Sequential(
        [tf.keras.layers.InputLayer((INPUTS,)), *layers, tf.keras.layers.Dense(CLASSES)]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(tf.keras.optimizers.SGD(0.01), loss)
    return model


def endless_batches(*_: object) -> tf.data.Dataset:
    rng = np.random.default_rng(1)
    images = rng.standard_normal((BATCH, INPUTS)).astype("float32")
    labels = rng.integers(0, CLASSES, BATCH)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return tf.data.Dataset.from_tensors((images, labels)).repeat().with_options(options)


def train_ours(arguments: argparse.Namespace) -> None:
    import tf_strategies as tfs

    options = tfs.ParameterServerOptions(transport=arguments.transport)
    if arguments.system == "sync":
        strategy = tfs.SyncReplicasStrategy(options=options)
    else:
        strategy = tfs.AsyncParameterServerStrategy(options=options)
    with strategy.scope():
        model = build_model(arguments.widths)
    fit(arguments, model)


def train_alone(arguments: argparse.Namespace) -> None:
    fit(arguments, build_model(arguments.widths))


def fit(arguments: argparse.Namespace, model: tf.keras.Model) -> None:
    clock = Clock()
    model.fit(
        endless_batches(),
        steps_per_epoch=arguments.steps,
        epochs=arguments.epochs,
        verbose=0,
        callbacks=[clock],
    )
    write(arguments, clock)


def train_tensorflow(arguments: argparse.Namespace) -> None:
    config = json.loads(os.environ["TF_CONFIG"])
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if config["task"]["type"] in ("worker", "ps"):
        tf.distribute.Server(
            resolver.cluster_spec(), config["task"]["type"], config["task"]["index"], protocol="grpc"
        ).join()
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    with strategy.scope():
        model = build_model(arguments.widths)
    clock = Clock()
    data = tf.keras.utils.experimental.DatasetCreator(endless_batches)
    model.fit(data, steps_per_epoch=arguments.steps, epochs=arguments.epochs, verbose=0, callbacks=[clock])
    write(arguments, clock)


def write(arguments: argparse.Namespace, clock: Clock) -> None:
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    result = {"steps": arguments.steps, "ends": clock.ends}
    Path(arguments.results, f"{task['type']}{task['index']}.json").write_text(json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--system", choices=["alone", "async", "sync", "tensorflow"], required=True)
    parser.add_argument("--transport", default="auto")
    parser.add_argument(
        "--widths", type=lambda text: [int(width) for width in text.split(",")], required=True
    )
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--results", required=True)
    arguments = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    train = {"alone": train_alone, "tensorflow": train_tensorflow}.get(arguments.system, train_ours)
    train(arguments)


if __name__ == "__main__":
    main()
