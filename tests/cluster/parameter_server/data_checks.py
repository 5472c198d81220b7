"""Checks what the parameter-server strategies promise of datasets, on three workers with two servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import tf_strategies as tfs
from tests.support.servers import wait_for_all

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1
_WIDTH = 6
_made_before: dict = {}


def make_before() -> None:
    """Makes datasets before TensorFlow is connected to the servers."""
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [1.0]), 0.0)
    words = tf.data.Dataset.from_tensors((tf.fill([6, _WIDTH], "a"), tf.zeros([6, 1])))
    _made_before["table"] = words.map(lambda x, y: (table.lookup(x), y))
    _made_before["sparse"] = _sparse_rows()
    specs = tf.TensorSpec([6, _WIDTH], tf.float32), tf.TensorSpec([6, 1], tf.float32)
    _made_before["function"] = tf.data.Dataset.from_generator(
        lambda: iter([(np.ones([6, _WIDTH], "float32"), np.ones([6, 1], "float32"))]), output_signature=specs
    )


def _sparse_rows() -> tf.data.Dataset:
    """70 rows, most of whose numbers are 0, and a target, in batches of 16."""
    random = np.random.RandomState(0)
    dense = np.where(random.rand(70, _WIDTH) < 0.4, random.randn(70, _WIDTH), 0).astype("float32")
    factor = tf.constant(1.5)
    rows = tf.data.Dataset.from_tensor_slices((tf.sparse.from_dense(dense), dense.sum(1, keepdims=True)))
    return rows.map(lambda x, y: (x, y * factor)).batch(16)


def _model() -> Any:
    inputs = keras.Input([_WIDTH], sparse=True)
    model = keras.Model(inputs, keras.layers.Dense(1, kernel_initializer="ones")(inputs))
    model.compile(keras.optimizers.SGD(0.05, momentum=0.9), "mse", metrics=["mae"])
    return model


def check_sparse_rows_of_a_dataset_made_before_the_strategy(folder: Path) -> None:
    """Each worker of SyncReplicasStrategy takes its share of the rows. An asynchronous one takes whole batches."""
    strategy = tfs.SyncReplicasStrategy(options=tfs.ParameterServerOptions(timeout=30))
    with strategy.scope():
        model = _model()
    wait_for_all(folder, "sparse model", strategy.rank, strategy.size)
    data = _made_before["sparse"]
    logs = model.fit(data, epochs=2, verbose=0, validation_data=data).history
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        plain = _model()
        expected = plain.fit(_sparse_rows(), epochs=2, verbose=0, validation_data=_sparse_rows()).history
    assert len(expected) == 4 and expected["loss"][1] < 0.9 * expected["loss"][0], expected
    for name, values in expected.items():
        np.testing.assert_allclose(logs[name], values, rtol=1e-5, err_msg=name)
    for mine, theirs in zip(model.get_weights(), plain.get_weights()):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)
    wait_for_all(folder, "sparse fit", strategy.rank, strategy.size)
    strategy.close()
    strategy = tfs.AsyncParameterServerStrategy(options=tfs.ParameterServerOptions(timeout=30))
    with strategy.scope():
        model = _model()
    rows = model.predict(data, verbose=0)
    assert rows.shape == (70, 1), rows.shape
    model.fit(data, epochs=1, verbose=0)
    wait_for_all(folder, "sparse batches", strategy.rank, strategy.size)
    assert int(model.optimizer.iterations.numpy()) == 5
    wait_for_all(folder, "sparse counted", strategy.rank, strategy.size)
    strategy.close()


def check_tables_and_functions_made_before_the_strategy_are_explained(folder: Path) -> None:
    strategy = tfs.AsyncParameterServerStrategy(options=tfs.ParameterServerOptions(timeout=30))
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input([_WIDTH]), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    for kind in ("table", "function"):
        error = ""
        try:
            model.evaluate(_made_before[kind], verbose=0)
        except RuntimeError as found:
            error = str(found)
        assert "a lookup table" in error and "made before the strategy" in error, error
    wait_for_all(folder, "tables", strategy.rank, strategy.size)
    strategy.close()
