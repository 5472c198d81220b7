"""A task of test_parameter_server_traffic.py: a server, or a worker that counts what its host sends and receives in a step.

python -m tests.cluster.parameter_server.traffic_worker FILE TRANSPORT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Callable

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.support.interfaces import carried
from tf_strategies.parameter_server.variables.server_variable import ServerVariable

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1

BATCH = 32
WIDTH, CLASSES = 512, 4
WORDS, SIZE = 100_000, 64
LAYERS = 15
TOP = 0.05
LENGTH = 60
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
    """Half of its tensors travel as bfloat16, and half as float32."""
    kinds = (lambda: keras.layers.Dense(16)), keras.layers.LayerNormalization
    with_policy("mixed_bfloat16")
    layers = [kind() for _ in range(LAYERS) for kind in kinds]
    with_policy("float32")
    return keras.Sequential([keras.layers.InputLayer((16,)), *layers]), np.ones((BATCH, 16), "float32")


def mixed() -> tuple:
    """Computes in bfloat16, but for its last layer. The regularizer of one layer reads a kernel as float32."""
    with_policy("mixed_bfloat16")
    layers = [
        keras.layers.Embedding(WORDS, SIZE),
        keras.layers.Flatten(),
        keras.layers.Dense(2 * CLASSES, kernel_regularizer=keras.regularizers.L2(1e-3)),
        keras.layers.Dense(WIDTH),
        keras.layers.Dense(WIDTH),
        keras.layers.Dense(CLASSES, dtype="float32"),
    ]
    with_policy("float32")
    rows = np.arange(BATCH * LENGTH, dtype="int32").reshape(BATCH, LENGTH) * 7
    return keras.Sequential([keras.layers.InputLayer((LENGTH,), dtype="int32"), *layers]), rows


def with_policy(name: str) -> None:
    keras.mixed_precision.set_global_policy(name)


def words(length: int) -> tuple:
    layers = [
        keras.layers.Embedding(WORDS, SIZE),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(CLASSES),
    ]
    return keras.Sequential(layers), np.arange(BATCH * length, dtype="int32").reshape(BATCH, length) * 7


def bytes_of(model: keras.Model) -> int:
    return sum(4 * int(np.prod(variable.shape)) for variable in model.trainable_variables)


def fitted(strategy: Any, make: Callable[[], tuple]) -> tuple:
    """Returns a model after its steps, and what a step has moved."""
    with strategy.scope():
        model, rows = make()
        model.compile(keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    data = tf.data.Dataset.from_tensors((rows, np.zeros(BATCH, "int32"))).repeat(_STEPS)
    traffic = Traffic()
    model.fit(data, verbose=0, callbacks=[traffic])
    return model, {**traffic.a_step(), "model": bytes_of(model)}


def cast_by_server_and_by_worker(strategy: Any) -> dict:
    """Returns what a step receives with either, and whether both have led to the same bits."""
    received, weights = [], []
    for on_servers in (True, False):
        ServerVariable.casts_on_servers = on_servers
        keras.utils.set_random_seed(3)
        model, counts = fitted(strategy, mixed)
        received.append(counts["received"])
        weights.append(b"".join(weight.tobytes() for weight in model.get_weights()))
    return {"received": received, "same": weights[0] == weights[1]}


def main(path: Path, transport: str) -> None:
    options = tfs.ParameterServerOptions(transport=transport)
    plain = tfs.AsyncParameterServerStrategy(options=options)
    top = tfs.compression.TopK(TOP)
    compressing = tfs.AsyncParameterServerStrategy(options=options, compression=top)
    joint = tfs.SyncReplicasStrategy(options=options)
    results = {}
    for name, strategy, make in (
        ("dense", plain, dense),
        ("deep", plain, deep),
        ("10 words", plain, lambda: words(10)),
        ("40 words", plain, lambda: words(40)),
        ("compressed", compressing, dense),
    ):
        _, results[name] = fitted(strategy, make)
    results["mixed"] = cast_by_server_and_by_worker(joint)
    path.write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
