"""Variables of the parameter-server strategies, in one process, which is worker and server at once, against plain ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402
from tests.support.partitions import thirds  # noqa: E402

keras = tf.keras  # tf_keras with TF_USE_LEGACY_KERAS=1

ROWS, WIDTH = 7, 2


@pytest.fixture(scope="module")
def cutting():
    """A strategy that cuts every variable into three parts."""
    return tfs.AsyncParameterServerStrategy(options=tfs.ParameterServerOptions(partitioner=thirds))


@pytest.fixture(params=["whole", "cut"])
def pair(request, cutting):
    """A variable of a strategy, in one part and in three, and a plain one."""
    strategy = cutting if request.param == "cut" else tfs.AsyncParameterServerStrategy()
    first = np.arange(ROWS * WIDTH, dtype="float32").reshape(ROWS, WIDTH) + 1
    with strategy.scope():
        mine = tf.Variable(first)
    assert [part.rows for part in mine.parts] == ([3, 2, 2] if request.param == "cut" else [ROWS])
    return mine, tf.Variable(first)


def require_equal(mine, plain) -> None:
    np.testing.assert_allclose(mine.numpy(), plain.numpy(), rtol=1e-6)
    np.testing.assert_allclose(tf.convert_to_tensor(mine), plain.numpy(), rtol=1e-6)


def test_dense_writes_are_those_of_a_plain_variable(pair) -> None:
    mine, plain = pair
    change = np.linspace(-1, 1, ROWS * WIDTH, dtype="float32").reshape(ROWS, WIDTH)
    for how in ("assign_add", "assign_sub", "assign"):
        for each in pair:
            getattr(each, how)(change)
        require_equal(mine, plain)

    @tf.function
    def change_all(variable):
        variable.assign_add(tf.ones([ROWS, WIDTH]))
        before = tf.identity(variable)
        variable.assign(2.0 * variable)
        return before + variable

    np.testing.assert_allclose(change_all(mine), change_all(plain), rtol=1e-6)
    require_equal(mine, plain)
    with pytest.raises(ValueError, match=r"\(7, 2\)|\(7, 3\)"):
        mine.assign(np.zeros([ROWS, 3], "float32"))
    require_equal(mine, plain)


@pytest.mark.parametrize("how", ["add", "sub", "mul", "div", "max", "min", "update"])
def test_sparse_writes_are_those_of_a_plain_variable(pair, how) -> None:
    mine, plain = pair
    # "update" with an index twice has no defined result.
    indices = [6, 0, 3] if how == "update" else [6, 0, 3, 0]
    values = np.array([[3, 4], [5, 2], [2, 8], [7, 3]], "float32")[: len(indices)]
    for each in pair:
        getattr(each, f"scatter_{how}")(tf.IndexedSlices(values, indices))
    require_equal(mine, plain)
    with pytest.raises(TypeError, match="IndexedSlices"):
        getattr(mine, f"scatter_{how}")(values)


def test_rows_are_read_by_number(pair) -> None:
    mine, plain = pair
    for numbers in ([], [[0, 6], [3, 3]], [5, 5, 5], 2):
        numbers = np.array(numbers, "int64")
        np.testing.assert_array_equal(mine.sparse_read(numbers), plain.sparse_read(numbers))
        np.testing.assert_array_equal(tf.gather(mine, numbers), tf.gather(plain, numbers))
    read = tf.function(lambda variable, numbers: tf.nn.embedding_lookup(variable, numbers))
    np.testing.assert_array_equal(read(mine, [[1, 6]]), read(plain, [[1, 6]]))
    np.testing.assert_array_equal(mine.gather_nd([[4, 1]]), plain.gather_nd([[4, 1]]))


@pytest.mark.parametrize("traced", [False, True])
def test_gradients_are_those_of_a_plain_variable(pair, traced) -> None:
    numbers = tf.constant([[0, 6], [3, 3]])

    def gradients(variable):
        with tf.GradientTape(persistent=True) as tape:
            dense = tf.reduce_sum(tf.square(variable))
            rows = tf.reduce_sum(tf.gather(variable, numbers) ** 3)
        return tape.gradient(dense, variable), tape.gradient(rows, variable)

    if traced:
        gradients = tf.function(gradients)
    mine, plain = (gradients(variable) for variable in pair)
    np.testing.assert_allclose(mine[0], plain[0], rtol=1e-6)
    assert isinstance(mine[1], tf.IndexedSlices) and mine[1].values.shape == (4, WIDTH)
    np.testing.assert_allclose(tf.convert_to_tensor(mine[1]), tf.convert_to_tensor(plain[1]), rtol=1e-6)


@pytest.mark.parametrize("traced", [False, True])
def test_half_precision_and_its_gradients_are_those_of_a_cast(pair, cutting, traced) -> None:
    """In a step, which also reads the value as float32."""
    variable, _ = pair
    numbers = tf.constant([[0, 6], [3, 3]])
    third = tf.constant(1 / 3, tf.bfloat16)

    def results(half: Any, rows: Any) -> Any:
        def replica() -> Any:
            with tf.GradientTape() as tape:
                first, looked_up = half(), rows()
                assert first.dtype == looked_up.dtype == tf.bfloat16
                second, again = tf.identity(variable), half()
                losses = [first * third, looked_up * third, second / 7, again * again * third]
                loss = tf.add_n([tf.reduce_sum(tf.cast(each, tf.float32)) for each in losses])
            gradient = tf.convert_to_tensor(tape.gradient(loss, variable))
            assert gradient.dtype == tf.float32
            return [*losses, gradient]

        return cutting.run(tf.function(replica) if traced else replica)

    here = results(
        lambda: tf.cast(variable, tf.bfloat16), lambda: tf.cast(variable.sparse_read(numbers), tf.bfloat16)
    )
    there = results(
        lambda: variable.read_as(tf.bfloat16), lambda: variable.sparse_read_as(numbers, tf.bfloat16)
    )
    for one, other in zip(here, there):
        np.testing.assert_array_equal(tf.cast(one, tf.float32), tf.cast(other, tf.float32))
    assert variable.read_as(tf.float64).dtype == tf.float64


@pytest.mark.parametrize("dtype", ["int64", "bool", "float32"])
def test_a_layer_in_mixed_precision_casts_floats_alone(cutting, dtype: str) -> None:
    class Layer(keras.layers.Layer):
        def build(self, shape: Any) -> None:
            self.held = self.add_weight(
                name="held", shape=(), dtype=dtype, initializer="ones", trainable=False
            )
            self.built = True

        def call(self, inputs: Any) -> Any:
            self.read = tf.convert_to_tensor(self.held).dtype
            return inputs

    with cutting.scope():
        layer = Layer(dtype="mixed_bfloat16")
        layer(tf.ones([1]))
    assert layer.read == (tf.bfloat16 if dtype == "float32" else tf.as_dtype(dtype))


def test_branches_and_loops_read_and_write(pair) -> None:
    mine, plain = pair

    @tf.function
    def step(variable, doubles):
        if doubles:
            variable.assign(variable * 2.0)
        for number in tf.range(3):
            variable.assign_add(variable.sparse_read([number])[0] + tf.zeros([ROWS, WIDTH]))
        return tf.reduce_sum(variable)

    for doubles in (tf.constant(True), tf.constant(False)):
        np.testing.assert_allclose(step(mine, doubles), step(plain, doubles), rtol=1e-6)
        require_equal(mine, plain)


@pytest.mark.parametrize("first", [True, False])
def test_both_branches_update_with_what_was_made_before_them(first: bool) -> None:
    strategy = tfs.AsyncParameterServerStrategy()
    with strategy.scope():
        variable = tf.Variable(10.0)

    def replica(is_first: tf.Tensor) -> None:
        with tf.GradientTape() as tape:
            loss = variable * 2.0
        gradient, rate = tape.gradient(loss, variable), variable * 0.1

        def update(factor: float) -> tf.Tensor:
            strategy.extended.update(
                variable,
                lambda held, change, by: held.assign_sub(factor * change * by),
                args=(gradient, rate),
            )
            return tf.constant(0)

        def merged(_: Any) -> None:
            tf.cond(is_first, lambda: update(1.0), lambda: update(2.0))

        tf.distribute.get_replica_context().merge_call(merged)

    tf.function(lambda is_first: strategy.run(replica, (is_first,)))(tf.constant(first))
    assert variable.numpy() == (8.0 if first else 6.0)
    assert strategy.staleness_stats().count == 1


def test_checkpoints_are_those_of_a_plain_variable(pair, tmp_path: Path) -> None:
    mine, plain = pair
    kept = mine.numpy()
    for saved, restored in ((mine, plain), (plain, mine)):
        path = tf.train.Checkpoint(variable=saved).write(str(tmp_path / "checkpoint"))
        for each in pair:
            each.assign(tf.zeros([ROWS, WIDTH]))
        tf.train.Checkpoint(variable=restored).read(path).assert_consumed()
        np.testing.assert_array_equal(restored.numpy(), kept)
        saved.assign(restored.numpy())


# --- stale gradients ---


def of_all(variable) -> Any:
    return variable**3 / 3


def of_rows_twice(variable) -> Any:
    return [tf.gather(variable, [6, 1]) ** 3 / 3, tf.gather(variable, [[1], [5]]) ** 2]


def of_rows_and_all(variable) -> Any:
    return [tf.gather(variable, [6, 1, 6]) ** 2, of_all(variable)]


def of_no_rows(variable) -> Any:
    return tf.gather(variable, tf.zeros([0], tf.int64))


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("loss_of", [of_all, of_rows_twice, of_rows_and_all, of_no_rows])
def test_a_delay_is_compensated_for(loss_of, traced: bool, cut: bool) -> None:
    options = tfs.ParameterServerOptions(partitioner=thirds if cut else None)
    strategy = tfs.AsyncParameterServerStrategy(damping="compensate", compensation=0.5, options=options)
    first = np.linspace(1, 2, ROWS * WIDTH, dtype="float32").reshape(ROWS, WIDTH)
    others = np.linspace(-1, 1, ROWS * WIDTH, dtype="float32").reshape(ROWS, WIDTH)
    with strategy.scope():
        variable = tf.Variable(first)

    def replica() -> None:
        with tf.GradientTape() as tape:
            losses = loss_of(variable)
        gradient = tape.gradient(losses, variable)
        for part in variable.parts:  # as another worker does meanwhile
            part.variable.assign_add(others[part.start : part.start + part.rows])

        def update(strategy: Any, gradient: Any) -> None:
            strategy.extended.update(variable, change, args=(gradient,), group=False)

        tf.distribute.get_replica_context().merge_call(update, args=(gradient,))

    def change(held: Any, gradient: Any) -> None:
        if isinstance(gradient, tf.IndexedSlices):
            held.scatter_sub(gradient)
        else:
            held.assign_sub(gradient)

    run = (lambda: strategy.run(replica)) if not traced else tf.function(lambda: strategy.run(replica))
    run()
    with tf.GradientTape() as tape:
        plain = tf.Variable(first)
        losses = loss_of(plain)
    stale = tf.convert_to_tensor(tape.gradient(losses, plain)).numpy()
    expected = first + others - (stale + 0.5 * stale**2 * others)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reads", [False, True])
def test_what_was_not_read_at_the_top_of_a_step_cannot_be_compensated(reads: bool) -> None:
    strategy = tfs.AsyncParameterServerStrategy(damping="compensate")
    with strategy.scope():
        variable = tf.Variable(tf.ones([ROWS, WIDTH]))

    def update(strategy: Any) -> None:
        strategy.extended.update(variable, lambda held, gradient: None, args=(variable_like,), group=False)

    def replica(which: tf.Tensor) -> None:
        if reads:
            tf.cond(which, lambda: tf.gather(variable, [1]), lambda: tf.zeros([1, WIDTH]))
        tf.distribute.get_replica_context().merge_call(update)

    variable_like = tf.ones([ROWS, WIDTH])
    run = tf.function(lambda which: strategy.run(replica, (which,)))
    with pytest.raises(ValueError, match=r"needs the value .* inside tf\.cond or a loop"):
        run(tf.constant(True))
