"""Checks of what a replica function and a strategy reduce and gather, over all replicas of all workers."""

from __future__ import annotations

import numpy as np
import tensorflow as tf


def check_custom_loop_reduces_over_all_replicas(strategy, folder) -> None:
    count = strategy.num_replicas_in_sync
    expected = count * (count + 1) / 2

    def replica(value):
        context = tf.distribute.get_replica_context()
        total = context.all_reduce(
            "SUM", {"f": value, "h": tf.cast(value, tf.float16), "i": tf.cast(value, tf.int32)}
        )
        slices = tf.IndexedSlices(
            tf.ones([1, 2]) * value, tf.cast(value[None], tf.int32), tf.constant([count + 1, 2])
        )
        table = tf.convert_to_tensor(context.all_reduce("MEAN", slices))
        return total, context.all_reduce("MEAN", value), context.all_gather(value[None], axis=0), table

    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(context.replica_id_in_sync_group + 1.0)
    )
    for step in (
        tf.function(lambda value: strategy.run(replica, args=(value,))),
        lambda v: strategy.run(replica, args=(v,)),
    ):
        total, mean, gathered, table = step(values)
        for part in map(strategy.experimental_local_results, (total["f"], total["h"], total["i"])):
            assert all(float(number) == expected for number in part)
        assert all(float(number) == expected / count for number in strategy.experimental_local_results(mean))
        for part in strategy.experimental_local_results(gathered):
            np.testing.assert_array_equal(part, np.arange(1.0, count + 1))
        for part in strategy.experimental_local_results(table):
            np.testing.assert_allclose(
                part, np.arange(count + 1.0)[:, None] * np.ones([1, 2]) / count, rtol=1e-6
            )
    assert float(strategy.reduce("SUM", values, axis=None)) == expected
    assert float(strategy.reduce("MEAN", values, axis=None)) == expected / count


def check_all_gather_of_arguments_and_wrong_axes(strategy, folder) -> None:
    count = strategy.num_replicas_in_sync

    def gather(value, axis):
        return tf.distribute.get_replica_context().all_gather(value, axis=axis)

    @tf.function
    def step(value, axis):
        return strategy.run(gather, args=(value, axis))

    def total(value):
        return tf.distribute.get_replica_context().all_reduce("SUM", value)

    for run in (
        tf.function(lambda value: strategy.run(total, args=(value,))),
        lambda v: strategy.run(total, (v,)),
    ):
        for part in strategy.experimental_local_results(run(tf.ones([]))):
            assert float(part) == count, (float(part), count)
    for axis, shape in ((0, (2 * count, 3)), (1, (2, 3 * count)), (-1, (2, 3 * count))):
        for part in strategy.experimental_local_results(step(tf.ones([2, 3]), axis)):
            assert part.shape == shape, (axis, part.shape)
    for value, axis, text in (
        (tf.ones([2, 3]), 2, "axis must be in [-2, 2)"),
        (tf.ones([]), 0, "expand_dims"),
    ):
        for call in (step, lambda value, axis: strategy.gather(value, axis)):
            try:
                call(value, axis)
            except ValueError as error:
                assert text in str(error), error
            else:
                raise AssertionError("no error")


def check_the_gradient_through_all_reduce(strategy, folder) -> None:
    @tf.function
    def step(value):
        def replica(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = tf.distribute.get_replica_context().all_reduce("SUM", x * x)
            return tape.gradient(y, x)

        return strategy.run(replica, args=(value,))

    value = strategy.experimental_distribute_values_from_function(lambda context: tf.constant(3.0))
    for part in strategy.experimental_local_results(step(value)):
        assert float(part) == 6.0 * strategy.num_replicas_in_sync


def check_stats_count(strategy, folder) -> None:
    before = strategy.communication_stats()
    strategy.reduce("SUM", tf.ones([1000]), axis=None)
    after = strategy.communication_stats()
    assert after.calls == before.calls + 1
    assert after.bytes_sent > before.bytes_sent and after.bytes_received > before.bytes_received
    assert after.algorithms and after.transport not in ("", "none") and after.seconds > before.seconds
