"""A worker of test_hosts.py: adds up compressed gradients with another host, and prints what was sent, counted twice."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.support.interfaces import carried

keras = tf.keras
WIDTH, STEPS = 700, 20


def step_of(strategy: Any) -> Callable[[], None]:
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((WIDTH,)), keras.layers.Dense(WIDTH)])
        optimizer = keras.optimizers.SGD(0.1)
        optimizer.build(model.trainable_variables)
    kernel = np.random.default_rng(strategy.rank).standard_normal((WIDTH, WIDTH)).astype("float32")

    def replica() -> None:
        optimizer.apply_gradients(zip([kernel, kernel[0]], model.trainable_variables))

    @tf.function
    def step() -> None:
        strategy.run(replica)

    return step


def main() -> None:
    tf.config.threading.set_intra_op_parallelism_threads(1)
    for name, compressor in (
        ("dense", None),
        ("gathered", tfs.compression.TopK(0.01)),
        ("scattered", tfs.compression.TopK(0.01, exchange="reduce_scatter")),
        ("quantized", tfs.compression.Ternary()),
    ):
        strategy = tfs.CollectiveAllReduceStrategy(compression=compressor)
        step = step_of(strategy)
        step()
        counted, told = carried()["sent"], strategy.communication_stats().bytes_sent
        for _ in range(STEPS):
            step()
        print(name, [strategy.communication_stats().bytes_sent - told, carried()["sent"] - counted])
        strategy.close()


if __name__ == "__main__":
    main()
