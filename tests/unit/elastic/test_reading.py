"""The variables of training are listed again when they have changed, and read together."""

from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402
from tf_strategies.elastic.reading import Reader, VariableLists  # noqa: E402
from tf_strategies.keras.model_state import metric_variables, replicas_of, training_variables  # noqa: E402

pytestmark = pytest.mark.keras
keras = tf.keras


@pytest.fixture
def strategy():
    return tfs.CollectiveAllReduceStrategy(devices=["CPU:0", "CPU:1"])


@pytest.fixture
def model(strategy):
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input([3]), keras.layers.Dense(4), keras.layers.Dense(2)])
        model.compile("adam", "mse", metrics=["mae"])
    return model


def train(model) -> None:
    model.fit(np.ones([8, 3], "float32"), np.ones([8, 2], "float32"), batch_size=4, verbose=0)


def same(found, wanted) -> bool:
    return list(found) == list(wanted) and all(found[name] is wanted[name] for name in wanted)


def test_variables_are_listed_again_when_they_may_have_changed(strategy, model):
    lists = VariableLists(model, strategy)
    before = lists.of_training()
    assert lists.of_training() is before
    train(model)  # makes variables of the optimizer and of metrics
    assert same(lists.of_training(), training_variables(model))
    assert same(lists.of_metrics(), metric_variables(model))
    assert lists.of_training() is lists.of_training() is not before
    model.layers[0].trainable = False  # its weights come last now
    assert same(lists.of_training(), training_variables(model))
    with strategy.scope():
        model.compile("sgd", "mse")
    assert same(lists.of_training(), training_variables(model))


def test_all_variables_are_read_in_one_call(strategy, model):
    train(model)
    variables = {**training_variables(model), **metric_variables(model)}
    wanted = {name: [part.numpy() for part in replicas_of(each)] for name, each in variables.items()}
    reader = Reader()
    values, sums = reader.read(variables, strategy)
    assert {*values, *sums} == set(variables)
    assert set(metric_variables(model)) <= set(sums)
    for each in variables.values():
        for part in replicas_of(each):
            part.assign_add(tf.ones_like(part))
    for name, parts in values.items():  # as they were
        for found, expected in zip(parts, wanted[name], strict=True):
            np.testing.assert_array_equal(found, expected)
    for name, total in sums.items():
        np.testing.assert_array_equal(total, sum(wanted[name]))
        assert total.dtype == variables[name].dtype.as_numpy_dtype
    again, sums_again = reader.read(variables, strategy)
    assert len(reader._functions) == 1
    for name, parts in again.items():
        np.testing.assert_allclose(parts[0], wanted[name][0] + 1, rtol=1e-6)
    for name, total in sums_again.items():
        np.testing.assert_allclose(total, sums[name] + 2, rtol=1e-6)


def test_few_functions_are_kept(strategy):
    reader = Reader()
    for number in range(6):
        with strategy.scope():
            variable = tf.Variable(float(number))
        values, sums = reader.read({"one": variable}, strategy)
        assert (values["one"][0].numpy(), sums) == (number, {})
    assert len(reader._functions) == 4
