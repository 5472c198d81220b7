"""One of several workers that train from a generator, which fails on worker 1 in its third batch."""

from __future__ import annotations

from typing import Any, Iterator

import numpy as np

import tf_strategies as tfs
from tests.cluster.collective.data_kinds import keras

STEPS = 50


def rows(rank: int) -> Iterator[Any]:
    for step in range(STEPS):
        if (rank, step) == (1, 2):
            raise OSError("the third batch cannot be read")
        yield np.ones((6, 2), "float32"), np.ones((6, 1), "float32")


def main() -> None:
    strategy = tfs.CollectiveAllReduceStrategy(tfs.CommunicationOptions(timeout=60))
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(rows(strategy.rank), steps_per_epoch=STEPS, verbose=0)
    print("all steps done", flush=True)


if __name__ == "__main__":
    main()
