"""The strategy in one process with two replicas on logical CPU devices: no network, no native library."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytestmark = pytest.mark.smoke

from tf_strategies.cluster import Cluster  # noqa: E402
from tf_strategies.collective import CollectiveAllReduceStrategy  # noqa: E402
from tf_strategies.collective.group import form_group  # noqa: E402
from tf_strategies.errors import ClusterConfigError, OptionsError  # noqa: E402
from tf_strategies.options import CommunicationOptions  # noqa: E402


def per_replica(strategy, values):
    return strategy.experimental_distribute_values_from_function(
        lambda context: values[context.replica_id_in_sync_group]
    )


def test_one_worker_is_rank_zero_of_one(strategy) -> None:
    assert (strategy.rank, strategy.size, strategy.num_replicas_in_sync) == (0, 1, 2)
    assert strategy.cluster_resolver.task_type is None
    assert strategy.extended.should_checkpoint and strategy.extended.should_save_summary


def test_the_native_library_is_not_loaded(strategy) -> None:
    script = "import tf_strategies, sys; tf_strategies.CollectiveAllReduceStrategy(); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    assert "tf_strategies.collective" in done.stdout
    assert "tf_strategies.native.communicator" not in done.stdout
    assert strategy.communication_stats().transport == "none"
    assert strategy.communication_stats().calls == 0


def test_a_cluster_of_one_needs_no_network() -> None:
    cluster = Cluster.from_tf_config(
        '{"cluster": {"worker": ["h:1"]}, "task": {"type": "worker", "index": 0}}'
    )
    strategy = CollectiveAllReduceStrategy(cluster=cluster, devices=["CPU:0"])
    assert (strategy.size, strategy.cluster_resolver.task_id) == (1, 0)


def test_a_parameter_server_is_refused() -> None:
    cluster = Cluster.from_tf_config(
        '{"cluster": {"worker": ["h:1"], "ps": ["h:2"]}, "task": {"type": "ps", "index": 0}}'
    )
    with pytest.raises(ClusterConfigError, match="ps 0"):
        CollectiveAllReduceStrategy(cluster=cluster)


@pytest.mark.parametrize("devices", ["CPU:0", []])
def test_devices_must_be_a_list(devices) -> None:
    with pytest.raises(OptionsError, match="devices"):
        CollectiveAllReduceStrategy(devices=devices)


def test_another_meaning_of_losses_is_refused() -> None:
    with pytest.raises(OptionsError, match="step_losses must be one of 'mean', 'sum'; got 'average'"):
        CollectiveAllReduceStrategy(step_losses="average")


def test_options_must_be_communication_options() -> None:
    with pytest.raises(OptionsError, match="CommunicationOptions"):
        CollectiveAllReduceStrategy(tf.distribute.experimental.CommunicationOptions())


@pytest.mark.parametrize("in_graph", [False, True])
def test_all_reduce_of_a_nested_structure(strategy, in_graph: bool) -> None:
    def replica(value):
        context = tf.distribute.get_replica_context()
        total = context.all_reduce("SUM", {"a": value, "b": [value * 2, tf.cast(value, tf.int64)]})
        return total, context.all_reduce("MEAN", value), context.all_gather(value[None], axis=0)

    def run(value):
        return strategy.run(replica, args=(value,))

    step = tf.function(run) if in_graph else run
    total, mean, gathered = step(per_replica(strategy, [tf.constant(1.0), tf.constant(2.0)]))
    for value, expected in (
        (total["a"], 3.0),
        (total["b"][0], 6.0),
        (total["b"][1], 3),
        (mean, 1.5),
        (gathered, [1.0, 2.0]),
    ):
        for part in strategy.experimental_local_results(value):
            np.testing.assert_array_equal(part, expected)


def test_reduce_and_gather(strategy) -> None:
    value = per_replica(strategy, [tf.constant([[1.0, 2.0]]), tf.constant([[3.0, 5.0]])])
    np.testing.assert_array_equal(strategy.reduce("SUM", value, axis=None), [[4.0, 7.0]])
    np.testing.assert_array_equal(strategy.reduce("MEAN", value, axis=None), [[2.0, 3.5]])
    np.testing.assert_array_equal(strategy.reduce("MEAN", value, axis=0), [2.0, 3.5])
    np.testing.assert_array_equal(strategy.gather(value, axis=0), [[1.0, 2.0], [3.0, 5.0]])
    np.testing.assert_array_equal(strategy.gather(value, axis=1), [[1.0, 2.0, 3.0, 5.0]])


def test_a_sum_of_what_is_no_replica_value_is_refused(strategy) -> None:
    with pytest.raises(ValueError, match="one for each of the 2 replicas"):
        strategy.reduce("SUM", tf.constant(1.0), axis=None)


def test_indexed_slices_add_up(strategy) -> None:
    def replica(value):
        slices = tf.IndexedSlices(tf.ones([2, 3]) * value, tf.constant([0, 1]), tf.constant([4, 3]))
        return tf.convert_to_tensor(tf.distribute.get_replica_context().all_reduce("MEAN", slices))

    result = strategy.run(replica, args=(per_replica(strategy, [tf.constant(1.0), tf.constant(3.0)]),))
    for part in strategy.experimental_local_results(result):
        np.testing.assert_array_equal(part, [[2.0] * 3, [2.0] * 3, [0.0] * 3, [0.0] * 3])


def test_variables_that_sum_when_read(strategy) -> None:
    with strategy.scope():
        total = tf.Variable(
            0.0,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    strategy.run(
        lambda value: total.assign_add(value),
        args=(per_replica(strategy, [tf.constant(1.0), tf.constant(4.0)]),),
    )
    assert float(total.read_value()) == 5.0


def test_an_empty_batch_contributes_no_nan(strategy) -> None:
    with strategy.scope():
        statistic = tf.Variable(1.0, trainable=False)

    @tf.function
    def step(batch):
        def replica(rows):
            mean = tf.reduce_mean(rows)
            statistic.assign(mean)
            return tf.distribute.get_replica_context().all_reduce("SUM", mean)

        return strategy.run(replica, args=(batch,))

    batches = [tf.constant([2.0, 4.0]), tf.constant([], tf.float32)]
    dataset = tf.data.Dataset.from_generator(
        lambda: iter(batches), output_signature=tf.TensorSpec([None], tf.float32)
    )
    batch = next(iter(strategy.distribute_datasets_from_function(lambda context: dataset)))
    total = step(batch)
    assert [float(part) for part in strategy.experimental_local_results(total)] == [3.0, 3.0]
    assert [float(part) for part in strategy.experimental_local_results(statistic)] == [3.0, 3.0]


def test_datasets_per_replica_are_refused(strategy) -> None:
    options = tf.distribute.InputOptions(
        experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
        experimental_fetch_to_device=False,
    )
    with pytest.raises(NotImplementedError, match="PER_REPLICA"):
        strategy.distribute_datasets_from_function(lambda context: tf.data.Dataset.range(4).batch(2), options)


def test_alone_a_worker_receives_what_it_sends_itself() -> None:
    rows = tf.ones([3, 2])
    received, lengths = form_group(None, CommunicationOptions()).all_to_all(
        rows, tf.constant([3]), name="rows"
    )
    np.testing.assert_array_equal(received, rows)
    np.testing.assert_array_equal(lengths, [3])
