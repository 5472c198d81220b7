"""What must be equal on all workers and is not ends training on all of them, and names what differs."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.collective.modes.models import KERAS3, keras, make_model, rows, variables_of
from tests.support.replicas import require_equal_everywhere


def check_weights_set_on_one_worker_only(strategy: Any) -> None:
    x, y = rows(12)

    def change_weights(model: Any) -> None:
        model.set_weights([weight + 1.0 for weight in model.get_weights()])

    def change_slot(model: Any) -> None:
        slot = variables_of(model.optimizer)[-1]
        slot.assign(slot + 1.0)

    for change, names in ((change_weights, "kernel"), (change_slot, "momentum|velocity|m/|bias")):
        model = make_model(strategy.scope(), list)
        model.fit(x, y, batch_size=12, verbose=0)
        change(model)  # on all: allowed
        model.fit(x, y, batch_size=12, verbose=0)
        if strategy.rank == strategy.size - 1:
            change(model)
        message = drifts(strategy, lambda: model.fit(x, y, batch_size=12, verbose=0))
        assert any(name in message for name in names.split("|")), message
        assert "when fit begins with epoch 1" in message and "on every worker" in message, message
    require_equal_everywhere(strategy, [tf.ones([])])


def check_settings_of_one_worker_only(strategy: Any) -> None:
    x, y = rows(12)
    last = strategy.rank == strategy.size - 1

    class Lower(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if last and epoch == 1:
                self.model.optimizer.learning_rate = 0.25

    model = make_model(strategy.scope(), list)
    message = drifts(
        strategy, lambda: model.fit(x, y, batch_size=12, epochs=4, verbose=0, callbacks=[Lower()])
    )
    assert message.startswith("learning_rate of optimizer"), message
    assert "is 0.1" in message and "but 0.25 on" in message and "at the end of epoch 2" in message, message

    momentum = 0.5 if last else 0.9
    model = make_model(strategy.scope(), list, lambda: keras.optimizers.SGD(0.1, momentum=momentum))
    message = drifts(strategy, lambda: model.fit(x, y, batch_size=12, verbose=0))
    assert message.startswith("momentum of optimizer") and "is 0.9" in message, message

    rate = 0.2 if last else 0.1
    model = make_model(strategy.scope(), lambda: [keras.layers.Dropout(rate)])
    message = drifts(strategy, lambda: model.fit(x, y, batch_size=12, verbose=0))
    assert message.startswith("rate of layer") and "is 0.1" in message and "but 0.2" in message, message

    words = np.array([f"word{number:02}" for number in range(81)])
    for count, part in ((8, "vocabulary[1]"), (80, "vocabulary")):

        def lookups() -> list:
            lookup = keras.layers.StringLookup(output_mode="multi_hot", max_tokens=81)
            lookup.adapt(words[:count] if strategy.rank else words[1 : count + 1])
            return [lookup]

        with strategy.scope():
            model = keras.Sequential(
                [keras.layers.Input([1], dtype="string"), *lookups(), keras.layers.Dense(2)]
            )
            model.compile("sgd", "mse")
        texts = tf.data.Dataset.from_tensor_slices((words[:12, None], x[:, :2])).batch(12)
        message = drifts(strategy, lambda: model.fit(texts, verbose=0))
        assert message.startswith(f"{part} of layer"), message


def check_counters_that_replicas_write(strategy: Any) -> None:
    class Counting(keras.layers.Layer):
        def __init__(self, alike: bool, aggregation: str) -> None:
            super().__init__()
            self.alike, self.aggregation = alike, aggregation

        def build(self, shape: Any) -> None:
            how = self.aggregation if KERAS3 else getattr(tf.VariableAggregation, self.aggregation.upper())
            made = {"shape": (), "initializer": "zeros", "trainable": False, "aggregation": how}
            self.steps = self.add_weight(name="steps", dtype="int32", **made)
            self.flag = self.add_weight(name="flag", dtype="bool", **{**made, "aggregation": self._none()})

        def _none(self) -> Any:
            return "none" if KERAS3 else tf.VariableAggregation.NONE

        def call(self, inputs: Any, training: bool = False) -> Any:
            if training:
                number = tf.distribute.get_replica_context().replica_id_in_sync_group
                self.steps.assign(self.steps + (1 if self.alike else tf.cast(number, tf.int32) + 1))
                self.flag.assign(True)
            return inputs

    x, y = rows(36)
    for alike, aggregation, expected in (
        (True, "none", 3),
        (False, "only_first_replica", 3),
        (False, "none", None),
    ):
        made = []

        def layers() -> list:
            made.append(Counting(alike, aggregation))
            return made

        model = make_model(strategy.scope(), layers)

        def fit() -> None:
            model.fit(x, y, batch_size=12, verbose=0)

        if expected is None:
            message = drifts(strategy, fit)
            assert "steps" in message and "aggregation" in message, message
            continue
        fit()
        require_equal_everywhere(strategy, [made[0].steps, tf.cast(made[0].flag, tf.int32)])
        assert int(made[0].steps.numpy()) == expected, made[0].steps
        assert bool(made[0].flag.numpy())


def check_backups_are_refused_where_weights_differ(strategy: Any) -> None:
    from tf_strategies.callbacks import group_state
    from tf_strategies.keras.model_state import training_variables

    x, y = rows(12)
    model = make_model(
        strategy.scope(), lambda: [keras.layers.BatchNormalization(), keras.layers.Dropout(0.5)]
    )
    model.fit(x, y, batch_size=12, verbose=0)
    kept = group_state.collect(strategy, training_variables(model))
    assert not [
        fact["label"] for name, fact in kept.facts.items() if fact["each"] and name.startswith("optimizer/")
    ]
    if strategy.rank == 0:
        kernel = model.trainable_variables[-2]
        kernel.assign(kernel + 1.0)
    message = drifts(strategy, lambda: group_state.collect(strategy, training_variables(model)))
    assert "kernel" in message and "cannot be saved as one value" in message, message


def check_what_a_drift_check_costs(strategy: Any) -> None:
    """One message when fit begins, and one at the end of each epoch."""
    x, y = rows(12)
    model = make_model(strategy.scope(), list)
    model.fit(x, y, batch_size=12, verbose=0)
    calls = []
    exchange = strategy.exchange
    strategy.exchange = lambda text, what: calls.append(len(text)) or exchange(text, what)
    try:
        model.fit(x, y, batch_size=12, epochs=3, verbose=0)
    finally:
        del strategy.exchange
    assert len(calls) == 4 and max(calls) < 8 * 40, calls


def drifts(strategy: Any, act: Callable[[], Any]) -> str:
    """Returns the message of the DriftError that `act` must raise, the same on all workers."""
    try:
        act()
    except tfs.DriftError as error:
        letters = np.frombuffer(str(error).encode(), np.uint8)
        require_equal_everywhere(strategy, [tf.constant([len(letters)])])
        assert strategy.name_of(0) in str(error) or "replicas of a worker" in str(error), error
        return str(error)
    raise AssertionError("no error")
