"""The protocols of tf_strategies.keras.types and fit_types are true of the objects of the Keras in use."""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Iterator, Tuple

import pytest
import tensorflow as tf

from tf_strategies.keras import fit_types, types
from tf_strategies.keras.current import KERAS, KERAS3

pytestmark = pytest.mark.keras
NAMES = (fit_types.__name__, types.__name__)


def members_of(protocol: type) -> set:
    """The attributes and methods that a protocol and its bases list."""
    found = set()
    for kind in protocol.__mro__:
        if kind.__module__ in NAMES:
            found |= set(vars(kind).get("__annotations__", {}))
            found |= {name for name, member in vars(kind).items() if is_listed(name, member)}
    return found


def is_listed(name: str, member: object) -> bool:
    is_own = name == "__call__" or not name.startswith(("__", "_no_init"))
    return is_own and (inspect.isfunction(member) or isinstance(member, property))


def objects() -> Iterator[Tuple[type, Any]]:
    model = KERAS.Sequential(
        [
            KERAS.layers.Input([2]),
            KERAS.layers.Dense(2),
            KERAS.layers.BatchNormalization(),
            KERAS.layers.Dense(1),
        ]
    )
    model.compile(KERAS.optimizers.Adam(1e-3), loss="mse", metrics=["mae"])
    model.train_on_batch(tf.ones([2, 2]), tf.ones([2, 1]))
    yield types.Model, model
    yield types.Variable, model.weights[0]
    yield types.Variable, tf.Variable(1.0)
    yield types.Operation, model.layers[0]
    yield types.Layer, model.layers[0]
    yield types.BatchNormalization, model.layers[1]
    yield types.Lookup, KERAS.layers.StringLookup(vocabulary=["a"])
    yield types.Discretization, KERAS.layers.Discretization(bin_boundaries=[0.0])
    yield types.Metric, model.metrics[0]
    yield types.Loss, KERAS.losses.MeanSquaredError()
    yield types.Optimizer, model.optimizer
    yield types.Optimizer, KERAS.mixed_precision.LossScaleOptimizer(KERAS.optimizers.SGD())
    if KERAS3:
        yield types.Keras3Model, model
        yield types.Keras3Variable, model.weights[0]
        yield types.Keras3Optimizer, model.optimizer
        yield types.Keras3LossScaleOptimizer, KERAS.optimizers.LossScaleOptimizer(KERAS.optimizers.SGD())
    else:
        model.fit(tf.ones([2, 2]), tf.ones([2, 1]), verbose=0)
        yield types.Keras2Model, model
        yield types.Keras2Optimizer, model.optimizer
        yield (
            types.Keras2LossScaleOptimizer,
            KERAS.mixed_precision.LossScaleOptimizer(KERAS.optimizers.SGD()),
        )
        yield fit_types.Keras2DataAdapter, adapter_of_arrays()
        yield types.Keras2CastVariable, cast_variable()
        yield types.Optimizer, KERAS.optimizers.legacy.Adam()
    yield fit_types.Callback, KERAS.callbacks.Callback()
    yield fit_types.ModelCheckpoint, KERAS.callbacks.ModelCheckpoint("model.keras")
    yield fit_types.CSVLogger, KERAS.callbacks.CSVLogger("log.csv")
    yield fit_types.CallbackList, KERAS.callbacks.CallbackList([], epochs=1)
    yield fit_types.DataAdapter, adapter_of_arrays()
    yield types.LearningRateSchedule, KERAS.optimizers.schedules.ExponentialDecay(0.1, 1, 0.9)


def cast_variable() -> Any:
    layer = KERAS.layers.Dense(1, dtype="mixed_float16")
    layer.build([None, 2])
    return layer.kernel


def adapter_of_arrays() -> Any:
    if KERAS3:
        adapters = importlib.import_module("keras.src.trainers.data_adapters.array_data_adapter")
        return adapters.ArrayDataAdapter(tf.ones([2, 2]).numpy())
    adapters = importlib.import_module(f"{KERAS.__name__}.src.engine.data_adapter")
    return adapters.TensorLikeDataAdapter(tf.ones([2, 2]))


def test_objects_have_what_their_protocols_list():
    missing = {
        f"{protocol.__name__} of {type(each).__module__}.{type(each).__name__}: {name}"
        for protocol, each in objects()
        for name in members_of(protocol)
        if not hasattr(each, name)
    }
    assert missing == set()


def test_every_protocol_of_keras_is_looked_at():
    named = [getattr(module, name) for module in (fit_types, types) for name in module.__all__]
    protocols = {each for each in named if getattr(each, "__module__", "") in NAMES}
    of_other_keras = {
        each for each in protocols if each.__name__.startswith("Keras2" if KERAS3 else "Keras3")
    }
    assert protocols - {protocol for protocol, _ in objects()} == {types.Compression, *of_other_keras}


def test_members_of_a_protocol_are_found():
    assert {
        "name",
        "weights",
        "get_config",
        "_flatten_layers",
        "optimizer",
        "distribute_strategy",
    } <= members_of(types.Model)
    assert members_of(types.LearningRateSchedule) == {"__call__", "get_config"}
