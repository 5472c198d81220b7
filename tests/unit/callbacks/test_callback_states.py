"""The states of Keras's own callbacks: what is taken in each step, and what only once in an epoch."""

from __future__ import annotations

from typing import Any, List

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tf_strategies.callbacks import callback_states  # noqa: E402

pytestmark = pytest.mark.keras
keras = tf.keras


class OwnStopping(keras.callbacks.EarlyStopping):
    """May change in each batch."""


class Weight:
    """Counts how often it is converted."""

    conversions = 0

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        self.conversions += 1
        return np.arange(3.0)


def make_callbacks(kind: type) -> List[Any]:
    history, stopping = keras.callbacks.History(), kind("loss", restore_best_weights=True)
    history.history, history.epoch = {"loss": [3.0]}, [0]
    stopping.best_weights = [Weight()]
    return [history, stopping, keras.callbacks.ModelCheckpoint("{epoch}.keras", save_freq=7)]


def test_history_and_weights_are_taken_once_in_an_epoch_and_counters_in_each_step() -> None:
    history, stopping, checkpoint = made = make_callbacks(keras.callbacks.EarlyStopping)
    snapshots = callback_states.Snapshots(made)
    taken = []
    for step in range(3):
        checkpoint._batches_seen_since_last_saving = stopping.wait = step
        taken.append(snapshots.take())
    assert stopping.best_weights[0].conversions == 1
    assert taken[0][0][0]["remembered"]["history"] is taken[2][0][0]["remembered"]["history"]
    for step, (facts, arrays) in enumerate(taken):
        assert facts[1]["remembered"]["wait"] == step
        assert facts[2]["remembered"]["_batches_seen_since_last_saving"] == step
        np.testing.assert_array_equal(arrays["EarlyStopping/0/0"], np.arange(3.0))
    history.history["loss"].append(2.0)
    stopping.best_weights = [np.ones(2)]
    snapshots.epoch_ended()
    facts, arrays = snapshots.take()
    assert facts[0]["remembered"]["history"] == {"loss": [3.0, 2.0]}
    np.testing.assert_array_equal(arrays["EarlyStopping/0/0"], np.ones(2))


def test_of_a_derived_class_all_is_taken_in_each_step() -> None:
    made = make_callbacks(OwnStopping)
    snapshots = callback_states.Snapshots(made)
    snapshots.take()
    made[1].best_weights = [np.ones(2)]
    np.testing.assert_array_equal(snapshots.take()[1]["EarlyStopping/0/0"], np.ones(2))


def test_a_state_can_be_restored_again_after_callbacks_have_changed() -> None:
    facts, arrays = callback_states.Snapshots(make_callbacks(keras.callbacks.EarlyStopping)).take()
    for _ in range(2):
        history = keras.callbacks.History()
        history.on_train_begin()
        callback_states.restore([history], facts, arrays)
        assert (history.history, history.epoch) == ({"loss": [3.0]}, [0])
        history.history["loss"].append(2.0)
        history.epoch.append(1)
