"""Checks that predictions and evaluations are those of one process, in order, on all workers."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tests.cluster.collective.data.numbered_rows import FEATURES, batches, linear, rows
from tests.cluster.collective.data_kinds import as_sequence, keras
from tests.support.replicas import require_equal_everywhere

Dataset = tf.data.Dataset


def check_predict_gives_all_rows_in_order_everywhere(strategy, folder) -> None:
    x, _ = rows(33)
    model = linear(strategy)
    kernel, bias = np.array([[1.0], [10.0], [-3.0]]), np.array([0.5])
    model.set_weights([kernel, bias])
    for count, size in ((33, 10), (2, 32), (1, 32)):
        expected = x[:count] @ kernel + bias
        for data in (
            {"x": x[:count], "batch_size": size},
            {"x": Dataset.from_tensor_slices(x[:count]).filter(lambda _: True).batch(size)},
        ):
            got = model.predict(**data, verbose=0)
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5, err_msg=f"{count} {size}")
    endless = Dataset.from_tensor_slices(x[:12]).repeat().batch(5)
    got = model.predict(endless, steps=3, verbose=0)
    np.testing.assert_allclose(got, np.tile(x[:12], (2, 1))[:15] @ kernel + bias, rtol=1e-5, atol=1e-5)
    got = model.predict(as_sequence([(part,) for part, _ in batches(*rows(14), 4)]), verbose=0)
    np.testing.assert_allclose(got, x[:14] @ kernel + bias, rtol=1e-5, atol=1e-5)
    with strategy.scope():
        model.compile(run_eagerly=True)
    got = model.predict(x[:9], batch_size=4, verbose=0)
    np.testing.assert_allclose(got, x[:9] @ kernel + bias, rtol=1e-5, atol=1e-5)


def check_predict_with_several_inputs_and_outputs(strategy, folder) -> None:
    x, y = rows(15)
    with strategy.scope():
        inputs = {"a": keras.layers.Input((FEATURES,), name="a"), "b": keras.layers.Input((1,), name="b")}
        sums = keras.layers.Dense(2, name="s")(inputs["a"])
        model = keras.Model(inputs, {"sums": sums, "both": keras.layers.Add()([sums, inputs["b"]])})
    weights, bias = model.get_weights()
    for data in ({"a": x, "b": y}, Dataset.from_tensor_slices({"a": x, "b": y}).batch(4)):
        batch = {"batch_size": 4} if isinstance(data, dict) else {}
        got = model.predict(data, **batch, verbose=0)
        assert set(got) == {"sums", "both"}
        np.testing.assert_allclose(got["sums"], x @ weights + bias, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(got["both"], x @ weights + bias + y, rtol=1e-4, atol=1e-5)


def check_evaluate_equals_one_process(strategy, folder) -> None:
    generator = np.random.default_rng(8)
    x = generator.standard_normal((35, FEATURES)).astype("float32")
    y = (generator.random((35, 1)) < 0.5).astype("float32")
    weight = generator.random(35).astype("float32")
    start = [generator.standard_normal((FEATURES, 1)).astype("float32"), np.array([0.2], "float32")]

    def compiled() -> Any:
        layers = [keras.layers.Input((FEATURES,)), keras.layers.Dense(1, activation="sigmoid")]
        model = keras.Sequential(layers)
        metrics = ["accuracy", keras.metrics.AUC(num_thresholds=20, name="auc")]
        model.compile("sgd", "binary_crossentropy", weighted_metrics=metrics)
        model.set_weights(start)
        return model

    with strategy.scope():
        model = compiled()
    single = compiled()
    for data in (
        {"x": x, "y": y, "batch_size": 8},
        {"x": x, "y": y, "sample_weight": weight, "batch_size": 8},
        {"x": Dataset.from_tensor_slices((x, y, weight)).batch(16)},
        {"x": x[:2], "y": y[:2], "batch_size": 8},
    ):
        mine, alone = (each.evaluate(**data, verbose=0, return_dict=True) for each in (model, single))
        assert set(mine) == set(alone) == {"loss", "accuracy", "auc"}, (mine, alone)
        for name, value in alone.items():
            np.testing.assert_allclose(mine[name], value, rtol=1e-5, err_msg=f"{name}: {mine} {alone}")
        require_equal_everywhere(strategy, [mine[name] for name in sorted(mine)])
