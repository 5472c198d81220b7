"""Checks that variables start on all workers as worker 0 has made them."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tests.support.replicas import require_equal_everywhere


def check_variables_start_as_worker_zero_made_them(strategy, folder) -> None:
    mine = float(strategy.rank + 1)
    with strategy.scope():
        given = [tf.Variable(mine), tf.Variable(lambda: tf.fill([2], mine)), tf.Variable(strategy.rank == 0)]
    for variable in given:
        for part in strategy.experimental_local_results(variable):
            assert (part.numpy() == 1).all()


def check_string_variables_start_as_worker_zero_made_them(strategy, folder) -> None:
    first, mine = [["a", ""], ["caf\u00e9", "long " * 9]], f"{strategy.rank}" * (strategy.rank + 1)
    with strategy.scope():
        table = tf.Variable(first if strategy.rank == 0 else [[mine, "b"], ["c", mine]])
        scalar = tf.Variable(lambda: tf.constant(mine))
        empty = tf.Variable(tf.zeros([0], tf.string))
    np.testing.assert_array_equal(table.numpy(), [[each.encode() for each in row] for row in first])
    assert scalar.numpy() == b"0" and empty.shape == [0]


def check_a_session_of_its_own_starts_and_trains_as_worker_zero(strategy, folder) -> None:
    mine, count = float(strategy.rank + 1), strategy.num_replicas_in_sync

    def rows_of_worker(context) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors(tf.fill([1], mine)).repeat(2)

    with tf.Graph().as_default(), strategy.scope():
        variable = tf.compat.v1.get_variable(
            "w", [3], initializer=tf.compat.v1.random_normal_initializer(seed=mine)
        )
        text = tf.Variable(f"worker {strategy.rank}")
        optimizer = tf.compat.v1.train.MomentumOptimizer(0.01, 0.9)
        iterator = strategy.make_input_fn_iterator(rows_of_worker)
        batches = iterator.get_next()

        def step(batch):
            return optimizer.minimize(tf.reduce_sum(tf.square(variable - batch)))

        parts = strategy.experimental_local_results
        train = parts(strategy.extended.call_for_each_replica(step, args=(batches,)))
        with tf.compat.v1.Session() as session:
            session.run([tf.compat.v1.global_variables_initializer(), iterator.initializer])
            before, strings = session.run([variable, text])
            batch, _ = session.run([parts(batches), train])
            after = session.run(variable)
    assert strings == b"worker 0" and [float(part[0]) for part in batch] == [mine] * len(batch)
    require_equal_everywhere(strategy, [before, after])
    targets = len(batch) * sum(range(1, strategy.size + 1))
    np.testing.assert_allclose(after, before - 0.01 * 2 * (count * before - targets), rtol=1e-5)


def check_variables_made_inside_a_function_agree(strategy, folder) -> None:
    made = []

    @tf.function
    def step():
        if not made:
            made.append(tf.Variable(tf.random.normal([3])))
        return made[0].read_value()

    with strategy.scope():
        first = step()
    require_equal_everywhere(strategy, [first])
