"""Embeddings are looked up in place: no tensor of the whole table, in one process with two replicas."""

from __future__ import annotations

from typing import Any, Callable, List

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

_ROWS, _WIDTH = 50, 3
_IDS = np.array([[4, 0], [7, 4]])
_RATE = 0.5


def operations_of(function: Callable) -> List[tf.Operation]:
    """Those of a traced function, and of the functions that it calls."""
    graph = function.get_concrete_function().graph
    bodies = [graph, *(each.graph for each in graph._functions.values() if hasattr(each, "graph"))]
    return [op for body in bodies for op in body.get_operations()]


def copies(function: Callable) -> List[str]:
    """The operations that copy the table: those that read it whole, unless told by another before them not to copy."""
    operations = operations_of(function)
    assert {"ResourceGather", "DisableCopyOnRead"} & {op.type for op in operations}
    reads = [
        op for op in operations if op.type == "ReadVariableOp" and op.outputs[0].shape == [_ROWS, _WIDTH]
    ]
    return [
        op.name for op in reads if not any(other.type == "DisableCopyOnRead" for other in op.control_inputs)
    ]


def numbered_rows() -> np.ndarray:
    return np.arange(_ROWS * _WIDTH, dtype=np.float32).reshape(_ROWS, _WIDTH)


@pytest.fixture
def table(strategy) -> tf.Variable:
    with strategy.scope():
        return tf.Variable(numbered_rows())


def in_bags(lookup: Callable, **kwargs: Any) -> Callable:
    """A lookup of the sums of several rows."""

    def look_up(table: tf.Variable, ids: tf.Tensor) -> tf.Tensor:
        every = tf.where(tf.ones_like(ids, tf.bool))
        bags = tf.SparseTensor(every, tf.reshape(ids, [-1]), tf.shape(ids, tf.int64))
        return lookup(table, bags, combiner="sum", **kwargs)

    return look_up


LOOKUPS = {
    "lookup": lambda table, ids: tf.nn.embedding_lookup(table, ids),
    "by keyword": lambda table, ids: tf.nn.embedding_lookup(params=table, ids=ids, name="rows"),
    "in a list": lambda table, ids: tf.nn.embedding_lookup([table], ids),
    "of TensorFlow 1": lambda table, ids: tf.compat.v1.nn.embedding_lookup(table, ids),
    "gather": lambda table, ids: tf.gather(table, ids),
    "bags": in_bags(tf.nn.embedding_lookup_sparse, sp_weights=None),
    "safe bags": in_bags(tf.nn.safe_embedding_lookup_sparse),
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_rows_are_read_and_trained_without_the_table(strategy, table, name: str) -> None:
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(_RATE)

    def replica() -> tf.Tensor:
        with tf.GradientTape() as tape:
            rows = LOOKUPS[name](table, tf.constant(_IDS))
            loss = tf.reduce_sum(rows)
        gradient = tape.gradient(loss, table)
        assert isinstance(gradient, tf.IndexedSlices)
        optimizer.apply_gradients([(gradient, table)])
        return rows

    @tf.function
    def step() -> Any:
        return strategy.run(replica)

    assert copies(step) == []
    expected = numbered_rows()[_IDS]
    for rows in strategy.experimental_local_results(step()):
        np.testing.assert_array_equal(rows, expected.sum(axis=1) if "bags" in name else expected)
    uses = np.bincount(_IDS.ravel(), minlength=_ROWS)
    np.testing.assert_array_equal(table.numpy(), numbered_rows() - 2 * _RATE * uses[:, None])


@pytest.mark.parametrize(
    "look_up",
    [
        lambda table, ids: tf.nn.embedding_lookup(table, ids, max_norm=1.0),
        lambda table, ids: tf.nn.embedding_lookup([table, table], ids),
        lambda table, ids: tf.nn.embedding_lookup(table, tf.ragged.constant([[4, 0], [7]])).to_tensor(),
        lambda table, ids: tf.nn.embedding_lookup(table, _IDS.tolist()),
        lambda table, ids: tf.gather(tf.convert_to_tensor(table), tf.cast(ids, tf.int16)),
    ],
    ids=["max_norm", "two tables", "ragged", "a Python list", "a tensor of the table"],
)
def test_other_lookups_are_as_those_of_any_variable(strategy, table, look_up: Callable) -> None:
    expected = look_up(tf.Variable(numbered_rows()), tf.constant(_IDS))
    for rows in strategy.experimental_local_results(strategy.run(lambda: look_up(table, tf.constant(_IDS)))):
        np.testing.assert_array_equal(rows, expected)


@pytest.mark.parametrize("dtype", [tf.int16, tf.int32, tf.int64])
def test_numbers_of_rows_are_integers_of_any_size(strategy, table, dtype: tf.DType) -> None:
    rows = strategy.run(lambda: tf.nn.embedding_lookup(table, tf.constant(_IDS, dtype)))
    for each in strategy.experimental_local_results(rows):
        np.testing.assert_array_equal(each, numbered_rows()[_IDS])


@pytest.mark.parametrize("name", ["lookup", "bags"])
def test_a_lookup_in_no_table_is_refused_by_tensorflow(name: str) -> None:
    with pytest.raises(ValueError, match="at least one param"):
        LOOKUPS[name]([], tf.constant(_IDS))


def test_a_variable_of_any_shape_is_none(strategy) -> None:
    with strategy.scope():
        variable = tf.Variable(numbered_rows(), shape=tf.TensorShape(None))
    np.testing.assert_array_equal(variable.numpy(), numbered_rows())
    assert not hasattr(variable, "looks_up_in_place")


@pytest.mark.parametrize("name", LOOKUPS)
def test_rows_are_read_in_place_between_replicas(strategy, table, name: str) -> None:
    @tf.function
    def read() -> tf.Tensor:
        with strategy.scope():
            return LOOKUPS[name](table, tf.constant(_IDS))

    expected = numbered_rows()[_IDS]
    assert copies(read) == []
    np.testing.assert_array_equal(read(), expected.sum(axis=1) if "bags" in name else expected)


@pytest.mark.keras
@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_an_embedding_of_keras_is_looked_up_in_place(strategy, policy: str) -> None:
    with strategy.scope():
        layer = tf.keras.layers.Embedding(_ROWS, _WIDTH, dtype=tf.keras.mixed_precision.Policy(policy))
        layer.build([None])

    @tf.function
    def step() -> Any:
        return strategy.run(lambda: layer(tf.constant(_IDS)))

    assert copies(step) == []
    (weights,) = layer.get_weights()
    dtype = tf.bfloat16 if policy == "mixed_bfloat16" else tf.float32
    for rows in strategy.experimental_local_results(step()):
        assert rows.dtype == dtype
        np.testing.assert_array_equal(
            tf.cast(rows, tf.float32), tf.cast(tf.cast(weights[_IDS], dtype), tf.float32)
        )


# TensorFlow looks up no bags in a variable of Keras 3.
_IN_LAYERS = [name for name in LOOKUPS if not hasattr(tf.keras, "ops") or "bags" not in name]


@pytest.mark.keras
@pytest.mark.parametrize("name", _IN_LAYERS)
def test_mixed_precision_casts_what_a_layer_looks_up(strategy, name: str) -> None:
    class Lookup(tf.keras.layers.Layer):
        def build(self, input_shape: Any) -> None:
            self.table = self.add_weight(shape=(_ROWS, _WIDTH), initializer="ones", name="table")

        def call(self, ids: tf.Tensor) -> tf.Tensor:
            return LOOKUPS[name](self.table, ids)

    with strategy.scope():
        layer = Lookup(dtype=tf.keras.mixed_precision.Policy("mixed_bfloat16"))
        layer.build([None])
    rows = strategy.run(lambda: layer(tf.constant(_IDS)))
    assert {each.dtype for each in strategy.experimental_local_results(rows)} == {tf.bfloat16}


_of_keras3 = pytest.mark.skipif(
    not hasattr(tf.keras, "ops"), reason="Keras 2 has no stateless calls, and its embeddings are no property"
)


@_of_keras3
def test_a_stateless_call_looks_up_in_the_values_it_is_given(strategy) -> None:
    with strategy.scope():
        layer = tf.keras.layers.Embedding(_ROWS, _WIDTH)
        layer.build([None])
    values = tf.constant(numbered_rows())
    with tf.GradientTape() as tape:
        tape.watch(values)
        rows, _ = layer.stateless_call([values], [], tf.constant(_IDS))
    np.testing.assert_array_equal(rows, numbered_rows()[_IDS])
    assert tape.gradient(rows, values).values.shape == [_IDS.size, _WIDTH]


@_of_keras3
def test_a_layer_that_makes_its_embeddings_looks_up_in_those(strategy) -> None:
    class Doubled(tf.keras.layers.Embedding):
        @property
        def embeddings(self) -> Any:
            return 2 * super().embeddings

    with strategy.scope():
        layer = Doubled(_ROWS, _WIDTH)
        layer.build([None])
    rows = strategy.run(lambda: layer(tf.constant(_IDS)))
    for each in strategy.experimental_local_results(rows):
        np.testing.assert_array_equal(each, 2 * layer.get_weights()[0][_IDS])


@pytest.mark.keras
def test_an_exported_embedding_answers_as_the_model_does(strategy, tmp_path) -> None:
    keras = tf.keras
    with strategy.scope():
        model = keras.Sequential(
            [keras.layers.Embedding(_ROWS, _WIDTH), keras.layers.GlobalAveragePooling1D()]
        )
        model.compile("sgd", "mse")
        assert model(_IDS).shape == [2, _WIDTH]
    model.fit(_IDS, np.ones([2, _WIDTH]), verbose=0)
    model.export(str(tmp_path / "model"))
    restored = tf.saved_model.load(str(tmp_path / "model"))
    answer = restored.serve(tf.constant(_IDS, tf.float32))
    np.testing.assert_allclose(answer, model.predict(_IDS, verbose=0), rtol=1e-6)
