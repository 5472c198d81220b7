"""A worker of test_hosts.py: adds up compressed gradients with another host, and prints what was sent, counted twice."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.support.interfaces import carried
from tests.support.processes import wait_until

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
        before = carried()["sent"]
        strategy = tfs.CollectiveAllReduceStrategy(compression=compressor)
        step = step_of(strategy)
        step()
        first_told, first_counted = told_and_counted(strategy, before)
        for _ in range(STEPS):
            step()
        told, counted = told_and_counted(strategy, before)
        print(name, [told - first_told, counted - first_counted])
        strategy.close()


def told_and_counted(strategy: tfs.CollectiveAllReduceStrategy, before: int) -> tuple[int, int]:
    """Returns the bytes that the strategy has sent, and what the interface has sent since `before`.

    A step ends when the kernel has taken its bytes, which leave a little later.
    """
    told = strategy.communication_stats().bytes_sent
    wait_until(lambda: carried()["sent"] - before >= told, 5, "the bytes of the step to leave")
    return told, carried()["sent"] - before


if __name__ == "__main__":
    main()
