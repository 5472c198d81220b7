"""A task of test_parameter_server_traffic.py: a server, or a worker that counts what its host sends and receives in a step.

python -m tests.cluster.parameter_server.traffic_worker FILE TRANSPORT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.support.interfaces import carried

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1

BATCH = 32
WIDTH, CLASSES = 512, 4
WORDS, SIZE = 100_000, 64
LAYERS = 30
TOP = 0.05
_FIRST, _STEPS = 5, 25


class Traffic(keras.callbacks.Callback):
    """What the network interfaces of this host have carried by the end of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.counts.append(carried())

    def a_step(self) -> dict:
        begin, end = self.counts[_FIRST], self.counts[-1]
        steps = len(self.counts) - 1 - _FIRST
        return {name: (end[name] - begin[name]) / steps for name in end}


def dense() -> tuple:
    model = keras.Sequential(
        [keras.layers.InputLayer((WIDTH,)), keras.layers.Dense(2 * WIDTH), keras.layers.Dense(CLASSES)]
    )
    return model, np.ones((BATCH, WIDTH), "float32")


def deep() -> tuple:
    layers = [keras.layers.Dense(16) for _ in range(LAYERS)]
    return keras.Sequential([keras.layers.InputLayer((16,)), *layers]), np.ones((BATCH, 16), "float32")


def words(length: int) -> tuple:
    layers = [
        keras.layers.Embedding(WORDS, SIZE),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(CLASSES),
    ]
    return keras.Sequential(layers), np.arange(BATCH * length, dtype="int32").reshape(BATCH, length) * 7


def bytes_of(model: keras.Model) -> int:
    return sum(4 * int(np.prod(variable.shape)) for variable in model.trainable_variables)


def main(path: Path, transport: str) -> None:
    options = tfs.ParameterServerOptions(transport=transport)
    plain = tfs.AsyncParameterServerStrategy(options=options)
    top = tfs.compression.TopK(TOP)
    compressing = tfs.AsyncParameterServerStrategy(options=options, compression=top)
    results = {}
    for name, strategy, make in (
        ("dense", plain, dense),
        ("deep", plain, deep),
        ("10 words", plain, lambda: words(10)),
        ("40 words", plain, lambda: words(40)),
        ("compressed", compressing, dense),
    ):
        with strategy.scope():
            model, rows = make()
            model.compile(
                keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
            )
        data = tf.data.Dataset.from_tensors((rows, np.zeros(BATCH, "int32"))).repeat(_STEPS)
        traffic = Traffic()
        model.fit(data, verbose=0, callbacks=[traffic])
        results[name] = {**traffic.a_step(), "model": bytes_of(model)}
    path.write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
