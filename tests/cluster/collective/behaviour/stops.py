"""Checks that all workers stop where one of them wants to."""

from __future__ import annotations

import numpy as np

from tests.cluster.collective.behaviour.models import keras, make_model, rows
from tests.support.replicas import require_equal_everywhere


class Stops(keras.callbacks.Callback):
    """Wants to stop after a batch (from 0) of the first epoch, or after that epoch; None for never."""

    def __init__(self, batch: int | None, at_epoch_end: bool = False) -> None:
        super().__init__()
        self.batch, self.at_epoch_end, self.batches = batch, at_epoch_end, 0

    def on_train_batch_end(self, batch, logs=None) -> None:
        self.batches += 1
        if self.batches - 1 == self.batch:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None) -> None:
        if self.at_epoch_end:
            self.model.stop_training = True


def batches_until_all_stop(strategy, model, callback: Stops) -> int:
    x, y = rows(24 * 8)
    model.fit(x, y, batch_size=24, epochs=3, verbose=0, callbacks=[callback])
    require_equal_everywhere(strategy, [np.array(callback.batches), *model.get_weights()])
    return callback.batches


def check_one_worker_that_wants_to_stop_stops_all_after_the_same_batch(strategy, folder) -> None:
    model = make_model(strategy)
    for batches in ({1: 3}, {0: 3}, {0: 3, 2: 4}, {0: 3, 1: 3, 2: 3}):
        seen = batches_until_all_stop(strategy, model, Stops(batches.get(strategy.rank)))
        assert 4 <= seen <= (4 if len(batches) == strategy.size else 5), (batches, seen)
    assert batches_until_all_stop(strategy, model, Stops(7 if strategy.rank == 2 else None)) in (8, 9)
    assert batches_until_all_stop(strategy, model, Stops(23 if strategy.rank == 2 else None)) == 24


def check_workers_that_want_to_stop_after_an_epoch_stop_there(strategy, folder) -> None:
    model = make_model(strategy)
    assert batches_until_all_stop(strategy, model, Stops(None, at_epoch_end=True)) == 8
    assert batches_until_all_stop(strategy, model, Stops(None, at_epoch_end=strategy.rank == 1)) in (8, 9)
    assert batches_until_all_stop(strategy, model, Stops(None)) == 24
