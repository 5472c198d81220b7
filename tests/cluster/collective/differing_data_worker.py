"""One of several workers whose data should be the same and are not, or that is left: each check forms a group of its own.

python -m tests.cluster.collective.differing_data_worker
"""

from __future__ import annotations

import random
from typing import Any, Callable, Iterator

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.collective.data_kinds import as_sequence, keras
from tests.support.checks import run_checks

ROWS, SIZE = 64, 8
Dataset = tf.data.Dataset


def rows(first: int = 0) -> tuple:
    x = np.random.default_rng(2).standard_normal((ROWS, 3)).astype("float32")
    return x, (np.arange(ROWS, dtype="float32") + first)[:, None]


def linear(strategy) -> Any:
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(1e-4), "mse")
    return model


def require_end(train: Callable[[Any], Any], *texts: str) -> None:
    """Trains in a new group, which must fail on all workers with an error that has these texts."""
    strategy = tfs.CollectiveAllReduceStrategy(tfs.CommunicationOptions(timeout=60))
    try:
        train(strategy)
    except tf.errors.InvalidArgumentError as error:
        for text in ("worker 0 (", "worker 1 (", "read different data", "seed", *texts):
            assert text in str(error), (text, str(error))
    else:
        raise AssertionError("no error")
    finally:
        strategy.close()


def fit(make: Callable[[int], Any], **arguments: Any) -> Callable[[Any], Any]:
    return lambda strategy: linear(strategy).fit(make(strategy.rank), verbose=0, **arguments)


def batches(order: np.ndarray) -> list:
    x, y = rows()
    return [(x[order[at : at + SIZE]], y[order[at : at + SIZE]]) for at in range(0, ROWS, SIZE)]


def own_order(rank: int) -> np.ndarray:
    return np.random.default_rng(rank).permutation(ROWS)


def check_a_sequence_that_shuffles_by_itself(_: Any) -> None:
    require_end(
        fit(lambda rank: as_sequence(batches(own_order(rank))), epochs=500), "batch 0 of an iteration"
    )


def check_a_generator_that_shuffles_by_itself(_: Any) -> None:
    def endless(rank: int) -> Iterator[tuple]:
        while True:
            yield from batches(own_order(rank))

    require_end(fit(endless, steps_per_epoch=4000))


def check_a_difference_that_begins_in_a_later_epoch(_: Any) -> None:
    class Reshuffled(type(as_sequence([]))):
        def on_epoch_end(self) -> None:
            self._batches = batches(own_order(seed.randrange(10**6)))

    seed = random.Random()
    require_end(fit(lambda rank: Reshuffled(batches(np.arange(ROWS))), epochs=500, shuffle=False))


def check_arrays_of_one_worker_in_the_place_of_all(_: Any) -> None:
    def train(strategy) -> None:
        x, y = rows(first=ROWS * strategy.rank)
        linear(strategy).fit(x + strategy.rank, y, batch_size=SIZE, epochs=500, verbose=0)

    require_end(train)


def check_a_map_that_hands_on_what_is_ready_first(_: Any) -> None:
    def train(strategy) -> None:
        own = tf.constant(own_order(strategy.rank))

        def late(
            index: tf.Tensor,
        ) -> tf.Tensor:  # as if rows took their time, in another order on each worker
            return tf.gather(own, index)

        dataset = Dataset.range(ROWS).map(late, num_parallel_calls=4, deterministic=False).batch(SIZE)
        for _ in range(500):
            for batch in strategy.experimental_distribute_dataset(dataset):
                strategy.reduce("SUM", strategy.run(tf.identity, args=(batch,)), axis=None)

    require_end(train)


def check_random_augmentation_of_the_same_rows_is_no_difference(_: Any) -> None:
    strategy = tfs.CollectiveAllReduceStrategy(tfs.CommunicationOptions(timeout=60))
    tf.random.set_seed(strategy.rank)
    x, y = rows()
    noisy = Dataset.from_tensor_slices((x, y)).map(lambda a, b: (a + tf.random.normal([3]), b)).batch(SIZE)
    alone = noisy.map(lambda a, _: (a, tf.zeros_like(a[:, :1])))
    model = linear(strategy)
    for dataset in (noisy, alone):
        assert np.isfinite(model.fit(dataset, epochs=3, verbose=0).history["loss"]).all()
    strategy.close()


def check_a_worker_that_left_is_named_outside_of_fit(_: Any) -> None:
    strategy = tfs.CollectiveAllReduceStrategy(tfs.CommunicationOptions(timeout=60))
    model = linear(strategy)
    if strategy.rank == 1:
        strategy.close()
        return
    for wait in (
        lambda: model.train_on_batch(*rows()),
        lambda: model.predict_on_batch(rows()[0]),
        lambda: strategy.experimental_distribute_dataset(Dataset.range(8).batch(2)),
        lambda: strategy.reduce("SUM", tf.ones([]), axis=None),
        lambda: strategy.gather(tf.ones([1]), axis=0),
    ):
        try:
            wait()
        except tfs.WorkerLostError as error:
            assert type(error).__name__ == "WorkerLostError", type(error)
            assert "worker 1 (" in str(error) and "left the group (its script ended)" in str(error), error
        else:
            raise AssertionError("no error")


if __name__ == "__main__":
    run_checks(globals(), None)
