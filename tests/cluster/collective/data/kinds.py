"""Checks that data of every kind train and validate as one process does, each row once."""

from __future__ import annotations

from typing import Any, Callable, Dict

import numpy as np
import tensorflow as tf

from tests.cluster.collective.data.numbered_rows import (
    RATE,
    Rows,
    Targets,
    batches,
    joint_training,
    linear,
    require_epochs,
    rows,
)
from tests.cluster.collective.data_kinds import as_generator, as_sequence, keras

Dataset = tf.data.Dataset


def check_every_kind_of_data_trains_as_one_process(strategy, folder) -> None:
    x, y = rows(33)
    size = 10
    kinds: Dict[str, Callable[[], dict]] = {
        "arrays": lambda: {"x": x, "y": y, "batch_size": size, "shuffle": False},
        "tensors": lambda: {"x": tf.constant(x), "y": tf.constant(y), "batch_size": size, "shuffle": False},
        "dataset": lambda: {"x": Dataset.from_tensor_slices((x, y)).batch(size)},
        "generator": lambda: {"x": as_generator(batches(x, y, size))},
        "sequence": lambda: {"x": as_sequence(batches(x, y, size)), "shuffle": False},
    }
    for kind, make in kinds.items():
        model = linear(strategy)
        history = model.fit(**make(), verbose=0)
        try:
            require_epochs(model, history, batches(x, y, size))
        except AssertionError as error:
            raise AssertionError(f"{kind}: {error}") from error


def check_dicts_and_eager_steps(strategy, folder) -> None:
    x, y = rows(11)
    with strategy.scope():
        inputs = {name: keras.layers.Input((size,), name=name) for name, size in (("a", 2), ("b", 1))}
        joined = keras.layers.Concatenate()([inputs["a"], inputs["b"]])
        model = keras.Model(
            inputs, {"out": keras.layers.Dense(1, kernel_initializer="zeros", name="out")(joined)}
        )
        model.compile(
            keras.optimizers.SGD(RATE), {"out": "mse"}, metrics={"out": [Rows(), Targets()]}, run_eagerly=True
        )
    data = {"a": x[:, :2], "b": x[:, 2:]}, {"out": y}
    history = model.fit(*data, batch_size=4, shuffle=False, verbose=0)
    named = {name.replace("out_", ""): value for name, value in history.history.items()}
    history.history = named
    require_epochs(model, history, batches(x, y, 4))
    predicted = model.predict(data[0], batch_size=4, verbose=0)
    kernel, bias = model.get_weights()
    np.testing.assert_allclose(predicted["out"], x @ kernel + bias, rtol=1e-4, atol=1e-5)


def check_batches_smaller_than_the_replicas(strategy, folder) -> None:
    x, y = rows(7)
    model = linear(strategy)
    require_epochs(
        model, model.fit(x, y, batch_size=2, shuffle=False, epochs=2, verbose=0), batches(x, y, 2), 2
    )


def check_shuffled_data_have_each_row_once_an_epoch(strategy, folder) -> None:
    x, y = rows(40)
    keras.utils.set_random_seed(strategy.rank)
    sequence = as_sequence(batches(x, y, 10))
    for arguments in ({"x": x, "y": y, "batch_size": 10}, {"x": sequence, "shuffle": True}):
        model = linear(strategy)
        logs = model.fit(**arguments, epochs=3, verbose=0).history
        assert logs["rows"] == [40.0] * 3
        np.testing.assert_allclose(logs["targets"], [y.sum()] * 3, rtol=1e-5)
        in_order = joint_training(batches(x, y, 10) * 3)
        assert not np.allclose(model.get_weights()[0], in_order[0], rtol=1e-6, atol=1e-6)
    tf.random.set_seed(None)


def check_steps_per_epoch_and_repeat(strategy, folder) -> None:
    x, y = rows(24)
    model = linear(strategy)
    dataset = Dataset.from_tensor_slices((x, y)).repeat().batch(8)
    history = model.fit(dataset, steps_per_epoch=2, epochs=3, verbose=0)
    assert history.history["rows"] == [16.0] * 3
    for mine, theirs in zip(model.get_weights(), joint_training(batches(x, y, 8) * 2)):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


def check_steps_per_execution(strategy, folder) -> None:
    x, y = rows(33)
    for size, drop in ((5, False), (4, True)):
        steps = [step for step in batches(x, y, size) if not drop or len(step[0]) == size]
        model = linear(strategy, steps_per_execution=3)
        dataset = Dataset.from_tensor_slices((x, y)).batch(size, drop_remainder=drop)
        require_epochs(model, model.fit(dataset, verbose=0), steps)


def check_validation_data_of_every_kind(strategy, folder) -> None:
    x, y = rows(12)
    val_x, val_y = rows(17, first=12)
    val = batches(val_x, val_y, 6)
    model = linear(strategy)

    def of(**arguments: Any) -> dict:
        return model.fit(x, y, batch_size=6, epochs=2, verbose=0, **arguments).history

    for data in ((val_x, val_y), Dataset.from_tensor_slices((val_x, val_y)).batch(6), as_sequence(val)):
        logs = of(validation_data=data)
        assert logs["val_rows"] == [17.0] * 2, (type(data), logs)
        np.testing.assert_allclose(logs["val_targets"], [val_y.sum()] * 2, rtol=1e-5)
        kernel, bias = model.get_weights()
        np.testing.assert_allclose(
            logs["val_loss"][1], ((val_x @ kernel + bias - val_y) ** 2).mean(), rtol=1e-4
        )
    logs = of(validation_split=0.25)
    assert (logs["rows"], logs["val_rows"]) == ([9.0] * 2, [3.0] * 2)
    endless = Dataset.from_tensor_slices((val_x, val_y)).repeat().batch(5)
    assert of(validation_data=endless, validation_steps=2)["val_rows"] == [10.0] * 2
    if hasattr(
        keras, "Variable"
    ):  # with Keras 2 it is not known what a generator has lost between two validations
        parts = as_generator(val * 3)  # of 6, 6 and 5 rows
        logs = of(validation_data=parts, validation_steps=2)
        assert logs["val_rows"] == [12.0, 11.0], logs
        sums = [val_y[:12].sum(), val_y[12:].sum() + val_y[:6].sum()]
        np.testing.assert_allclose(logs["val_targets"], sums, rtol=1e-5)
