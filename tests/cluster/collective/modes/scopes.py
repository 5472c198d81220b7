"""Models, optimizers and metrics made outside of the scope are refused before they train; those of one worker are not."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

import tf_strategies as tfs
from tests.cluster.collective.modes.models import CLASSES, FEATURES, KERAS3, alone, keras, make_model, rows


def check_a_model_made_outside_the_scope(strategy: Any) -> None:
    x, y = rows(12)
    model = make_model(tf.distribute.get_strategy().scope(), list)
    for train in (
        lambda: model.fit(x, y, batch_size=12, verbose=0),
        lambda: model.train_on_batch(x, y),
    ):
        refused(
            train,
            f"was made outside of strategy.scope(), but this process is {strategy.name_of(strategy.rank)} of {strategy.size}",
            "inside `with strategy.scope():`",
            "OneDeviceStrategy",
        )
    assert model.predict(x, verbose=0).shape == (12, CLASSES)

    def inside() -> None:
        with strategy.scope():
            model.compile("sgd", "mse")
            model.fit(x, y, batch_size=12, verbose=0)

    refused(inside, "scope")
    own = make_model(alone(), list)
    own.fit(x, y, batch_size=12, verbose=0)


def check_parts_made_outside_the_scope(strategy: Any) -> None:
    x, y = rows(12)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def train(compile_model: Callable[[Any], None]) -> None:
        model = make_model(strategy.scope(), list)
        compile_model(model)
        model.fit(x, y, batch_size=12, verbose=0)

    def compiled_inside(model: Any, *args: Any, **kwargs: Any) -> None:
        with strategy.scope():
            model.compile(*args, **kwargs)

    optimizer, metric = keras.optimizers.Adam(), keras.metrics.SparseCategoricalAccuracy()
    refused(lambda: train(lambda model: compiled_inside(model, optimizer, loss)), "scope")
    refused(
        lambda: train(lambda model: compiled_inside(model, "adam", loss, weighted_metrics=[metric])), "scope"
    )
    if KERAS3:
        refused(
            lambda: train(lambda model: model.compile("adam", loss)),
            "of optimizer 'adam",
            "was made outside of strategy.scope()",
            "call model.compile inside",
        )
    else:
        train(lambda model: model.compile("adam", loss))  # Keras 2 compiles in the scope of the model


def check_a_model_without_call(strategy: Any) -> None:
    class Pair(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = keras.layers.Dense(FEATURES), keras.layers.Dense(CLASSES)

        def train_step(self, data: Any) -> dict:
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self.second(self.first(x)))
            weights = self.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights))
            return {"loss": loss}

    class Callable(Pair):
        def call(self, x: Any) -> Any:
            return self.second(self.first(x))

    x, y = rows(12)
    with strategy.scope():
        pair, called = Pair(), Callable()
        for model in (pair, called):
            model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    if KERAS3:
        refused(
            lambda: pair.fit(x, y, batch_size=12, verbose=0),
            "has no `call` method",
            f"{pair.second.name!r} is not built",
            "Define `call`",
        )
    else:
        pair.fit(x, y, batch_size=12, verbose=0)  # Keras 2 builds the layers in the step
    called.fit(x, y, batch_size=12, verbose=0)


def refused(act: Callable[[], Any], *words: str) -> None:
    try:
        act()
    except ValueError as error:
        assert isinstance(error, tfs.OptionsError) or not KERAS3, error
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError("no error")
