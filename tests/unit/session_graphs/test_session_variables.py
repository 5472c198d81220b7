"""Training in graphs that a session runs, in one process that is worker and server at once, against plain TensorFlow."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Dict

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

import tf_strategies as tfs  # noqa: E402
from tests.support.partitions import thirds  # noqa: E402

v1 = tf.compat.v1
STEPS = 4
INDICES = np.array([[0, 3, 3], [6, 1, 0]], np.int64)


def strategy_of(kind: str, cut: bool = False) -> Any:
    options = tfs.ParameterServerOptions(partitioner=thirds if cut else None)
    made = {"async": tfs.AsyncParameterServerStrategy, "sync": tfs.SyncReplicasStrategy}[kind]
    return made(options=options)


def loss_of_rows() -> Any:
    """Of an embedding of 7 rows, of which some are looked up, and a matrix."""
    table = v1.get_variable("table", initializer=lambda: tf.reshape(tf.range(14.0) / 10, [7, 2]))
    matrix = v1.get_variable("matrix", initializer=lambda: tf.reshape(tf.range(6.0) / 10, [2, 3]))
    rows = tf.nn.embedding_lookup(table, tf.constant(INDICES))
    return tf.reduce_mean((tf.matmul(tf.reduce_sum(rows, axis=1), matrix) - 1.0) ** 2)


def adagrad(loss: Any, step: Any) -> Any:
    return v1.train.AdagradOptimizer(0.1).minimize(loss, step)


def adam(loss: Any, step: Any) -> Any:
    return v1.train.AdamOptimizer(0.1).minimize(loss, step)


def clipped(loss: Any, step: Any) -> Any:
    optimizer = v1.train.MomentumOptimizer(0.1, 0.9)
    gradients, variables = zip(*optimizer.compute_gradients(loss))
    gradients, _ = tf.clip_by_global_norm(gradients, 0.1)
    return optimizer.apply_gradients(zip(gradients, variables), step)


def averaged(loss: Any, step: Any) -> Any:
    trained = v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    with tf.control_dependencies([trained]):
        return tf.train.ExponentialMovingAverage(0.5).apply(v1.trainable_variables())


def two_optimizers(loss: Any, step: Any) -> Any:
    table, matrix = v1.trainable_variables()
    first = v1.train.GradientDescentOptimizer(0.1).minimize(loss, var_list=[table])
    second = v1.train.FtrlOptimizer(0.1).minimize(loss, step, var_list=[matrix])
    return tf.group(first, second)


def of_keras(loss: Any, step: Any) -> Any:
    optimizer = tf.keras.optimizers.legacy.Adam(0.1)
    optimizer.iterations = step
    return tf.group(optimizer.get_updates(loss, v1.trainable_variables()))


def accumulated(loss: Any, step: Any) -> Any:
    """Every second step applies the gradients of two."""
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    found = optimizer.compute_gradients(loss)
    kept = [
        v1.get_variable(f"kept_{i}", initializer=tf.zeros(v.shape), trainable=False)
        for i, (_, v) in enumerate(found)
    ]
    added = [sum_.assign_add(tf.convert_to_tensor(gradient)) for sum_, (gradient, _) in zip(kept, found)]
    with tf.control_dependencies([each.op for each in added]):
        counted = step.assign_add(1).op
    with tf.control_dependencies([counted]):
        due = tf.equal(step.read_value() % 2, 0)

    def apply() -> Any:
        totals = [each.read_value() for each in kept]
        applied = optimizer.apply_gradients([(total, v) for total, (_, v) in zip(totals, found)])
        with tf.control_dependencies([applied]):
            return tf.group([each.assign(tf.zeros(each.shape)).op for each in kept])

    return tf.cond(due, apply, tf.no_op)


def clipped_weights(loss: Any, step: Any) -> Any:
    trained = v1.train.GradientDescentOptimizer(0.5).minimize(loss, step)
    with tf.control_dependencies([trained]):
        return tf.group([v.assign(tf.clip_by_value(v, -0.5, 0.5)).op for v in v1.trainable_variables()])


def trained(strategy: Any, train: Any, folder: Path) -> Dict[str, np.ndarray]:
    """The loss of each step, and all that a checkpoint holds after the last, by name."""
    folder.mkdir()
    with tf.Graph().as_default(), strategy.scope() if strategy else contextlib.nullcontext():
        step = v1.train.get_or_create_global_step()

        def replica() -> Any:
            loss = loss_of_rows()
            return train(loss, step), loss

        train_op, loss = strategy.run(replica) if strategy else replica()
        saver = v1.train.Saver()
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            found = {"losses": np.array([session.run([loss, train_op])[0] for _ in range(STEPS)])}
            saver.save(session, str(folder / "model"))
    reader = tf.train.load_checkpoint(str(folder / "model"))
    return {**found, **{name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}}


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
@pytest.mark.parametrize("kind", ["async", "sync"])
@pytest.mark.parametrize("train", [adagrad, adam, clipped, averaged, two_optimizers, of_keras])
def test_a_session_trains_as_plain_tensorflow_does(train: Any, kind: str, cut: bool, tmp_path: Path) -> None:
    if train is of_keras and not tf.__version__.startswith("2.15"):
        pytest.skip("Keras 3 has no legacy optimizers, which alone build graphs for sessions")
    plain = trained(None, train, tmp_path / "plain")
    mine = trained(strategy_of(kind, cut), train, tmp_path / "mine")
    assert set(mine) == set(plain)
    for name, value in plain.items():
        np.testing.assert_allclose(mine[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
    assert mine["global_step"] == STEPS


def test_a_checkpoint_is_restored_into_variables_in_parts(tmp_path: Path) -> None:
    plain = trained(None, adagrad, tmp_path / "plain")
    with tf.Graph().as_default(), strategy_of("async", cut=True).scope():
        table = v1.get_variable("table", [7, 2], initializer=v1.zeros_initializer)
        assert len(table.parts) == 3
        with v1.Session() as session:
            v1.train.Saver().restore(session, str(tmp_path / "plain" / "model"))
            np.testing.assert_array_equal(session.run(table), plain["table"])


def test_variables_warm_start_from_a_checkpoint(tmp_path: Path) -> None:
    plain = trained(None, adagrad, tmp_path / "plain")
    with tf.Graph().as_default(), strategy_of("sync").scope():
        table = v1.get_variable("table", [7, 2], initializer=v1.zeros_initializer)
        v1.train.warm_start(str(tmp_path / "plain"), vars_to_warm_start=".*")
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            np.testing.assert_array_equal(session.run(table), plain["table"])


@pytest.mark.parametrize("train", [accumulated, clipped_weights])
def test_what_depends_on_updates_comes_after_them(train: Any, tmp_path: Path) -> None:
    plain = trained(None, train, tmp_path / "plain")
    mine = trained(strategy_of("async"), train, tmp_path / "mine")
    for name, value in plain.items():
        np.testing.assert_allclose(mine[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def test_weights_written_after_their_gradient_are_refused_where_it_is_applied_later(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match=r"table.* is written after its gradient"):
        trained(strategy_of("sync"), clipped_weights, tmp_path / "mine")


def test_a_gradient_that_the_train_op_leaves_out_is_refused_where_it_is_applied_later(tmp_path: Path) -> None:
    def train(loss: Any, step: Any) -> Any:
        v1.train.GradientDescentOptimizer(0.1).minimize(loss)
        return step.assign_add(1).op

    with pytest.raises(
        ValueError, match=r"table.* is applied by an operation that does not belong to the training step"
    ):
        trained(strategy_of("sync"), train, tmp_path / "mine")


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_an_assignment_that_the_train_op_leaves_out_is_for_who_runs_it(kind: str) -> None:
    strategy = strategy_of(kind)
    with tf.Graph().as_default(), strategy.scope():
        step = v1.train.get_or_create_global_step()
        given = v1.placeholder(tf.float32, [7, 2])

        def replica() -> Any:
            trained = adagrad(loss_of_rows(), step)
            made["load"] = v1.trainable_variables()[0].assign(given).op
            return trained

        made: Dict[str, Any] = {}
        train_op = strategy.run(replica)
        table = v1.trainable_variables()[0]
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(made["load"], {given: np.full([7, 2], 3.0)})
            np.testing.assert_array_equal(session.run(table), np.full([7, 2], 3.0))
            session.run(train_op)
            assert session.run(step) == 1
            assert np.count_nonzero(session.run(table) != 3.0) == 2 * len(set(INDICES.flat))


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_weights_of_a_loop_are_trained(kind: str) -> None:
    values = []
    for strategy in (None, strategy_of(kind)):
        with tf.Graph().as_default(), strategy.scope() if strategy else contextlib.nullcontext():
            step = v1.train.get_or_create_global_step()

            def replica() -> Any:
                matrix = v1.get_variable("matrix", initializer=lambda: tf.constant([[0.5, 0.1], [0.2, 0.3]]))
                _, state = tf.while_loop(
                    lambda i, _: i < 3,
                    lambda i, x: (i + 1, tf.matmul(x, matrix)),
                    [tf.constant(0), tf.ones([1, 2])],
                )
                return v1.train.GradientDescentOptimizer(0.5).minimize(
                    tf.reduce_sum((state - 1.0) ** 2), step
                )

            train_op = strategy.run(replica) if strategy else replica()
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                for _ in range(STEPS):
                    session.run(train_op)
                values.append(session.run(v1.trainable_variables()[0]))
    np.testing.assert_allclose(values[1], values[0], rtol=1e-5)


def test_savers_may_name_variables_by_their_operations(tmp_path: Path) -> None:
    for cut in (False, True):
        with tf.Graph().as_default(), strategy_of("async", cut).scope():
            assert v1.get_variable("table", [7, 2]).op.name == "table"


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_what_is_assigned_in_a_step_is_written_with_it(kind: str) -> None:
    strategy = strategy_of(kind)
    with tf.Graph().as_default(), strategy.scope():
        count = tf.Variable(0.0, trainable=False)
        written = strategy.run(lambda: count.assign_add(1.0))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for _ in range(3):
                session.run(written)
            assert session.run(count) == 3.0
