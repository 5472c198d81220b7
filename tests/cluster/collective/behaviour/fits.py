"""Checks that workers train alike, whatever data they have and whatever is printed."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.cluster.collective.behaviour.models import CLASSES, keras, make_model, rows
from tests.support.replicas import require_equal_everywhere


def check_workers_are_bit_identical_after_200_steps(strategy, folder) -> None:
    keras.utils.set_random_seed(50 + strategy.rank)
    model = make_model(strategy)
    require_equal_everywhere(strategy, model.get_weights())
    x, y = rows(24 * 20)
    model.fit(x, y, batch_size=24, epochs=10, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 200
    require_equal_everywhere(strategy, model.get_weights())


def check_a_distributed_dataset_has_each_row_once(strategy, folder) -> None:
    dataset = tf.data.Dataset.range(50).batch(12)
    seen = []
    for batch in strategy.experimental_distribute_dataset(dataset):
        seen.append(strategy.gather(batch, axis=0).numpy())
    assert len(seen) == 5
    assert sorted(np.concatenate(seen)) == list(range(50))


def check_uneven_data_ends_for_all_together(strategy, folder) -> None:
    x, y = rows(40)

    def feed(context):
        count = 4 * (context.input_pipeline_id + 1)
        return tf.data.Dataset.from_tensor_slices((x[:count], y[:count])).batch(4)

    for normalize in (False, True):
        model = make_model(strategy, normalize)
        dataset = strategy.distribute_datasets_from_function(feed)
        history = model.fit(dataset, epochs=1, steps_per_epoch=strategy.size, verbose=0).history
        require_equal_everywhere(strategy, [history["loss"], history["accuracy"]])
        require_equal_everywhere(strategy, [weight.numpy() for weight in model.trainable_variables])
        assert all(np.isfinite(weight).all() for weight in model.get_weights())


def check_fewer_rows_than_replicas(strategy, folder) -> None:
    x, y = rows(strategy.num_replicas_in_sync + 1)
    for normalize in (False, True):
        model = make_model(strategy, normalize)
        model.fit(x, y, batch_size=strategy.num_replicas_in_sync, epochs=2, verbose=0)
        assert all(np.isfinite(weight).all() for weight in model.get_weights())
    loss, accuracy = model.evaluate(x[:1], y[:1], verbose=0)
    require_equal_everywhere(strategy, [[loss, accuracy]])
    assert model.predict(x[:2], verbose=0).shape == (2, CLASSES)


class Tracker(keras.callbacks.Callback):
    """Does what callbacks of experiment trackers do: it describes the model, and keeps the logs of batches and epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.model_is, self.batches, self.epochs = None, [], []

    def on_train_begin(self, logs=None) -> None:
        self.model_is = (self.model.count_params(), type(self.model.optimizer).__name__)

    def on_train_batch_end(self, batch, logs=None) -> None:
        self.batches.append(float(logs["loss"]))

    def on_epoch_end(self, epoch, logs=None) -> None:
        self.epochs.append({**logs, "rate": float(self.model.optimizer.learning_rate.numpy())})


def check_logs_and_callbacks_agree_whatever_is_printed(strategy, folder) -> None:
    x, y = rows(60)
    tracker = Tracker()  # on the chief alone
    shown = keras.callbacks.EarlyStopping("val_loss", patience=1, min_delta=0.05)
    model = make_model(strategy)
    history = model.fit(
        x,
        y,
        batch_size=12,
        epochs=8,
        validation_split=0.2,
        callbacks=[shown, *([tracker] if strategy.is_chief else [])],
        verbose=2 if strategy.rank == 1 else 0,
    ).history
    require_equal_everywhere(strategy, [history[name] for name in sorted(history)])
    if strategy.is_chief:
        assert [each["loss"] for each in tracker.epochs] == history["loss"] and tracker.model_is[1] == "Adam"
        assert len(tracker.batches) == 4 * len(tracker.epochs) and "val_loss" in tracker.epochs[0]
    logits = model.predict(x, batch_size=12, verbose=0)
    accuracy = model.evaluate(x, y, batch_size=12, verbose=0)[1]
    assert abs(accuracy - (logits.argmax(axis=1) == y).mean()) < 1e-6


def check_the_step_that_finds_no_data_left_is_not_counted(strategy, folder) -> None:
    model = make_model(strategy)
    for _ in range(5):
        dataset = tf.data.Dataset.from_tensor_slices(rows(48)).filter(lambda x, y: True).batch(12)
        model.fit(dataset, epochs=2, verbose=0)
    assert int(model.optimizer.iterations.numpy()) == 5 * 2 * 4
