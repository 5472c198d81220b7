"""What replicas write, draw and merge, in one process with two replicas: no network."""

from __future__ import annotations

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tf_strategies.collective import CollectiveAllReduceStrategy  # noqa: E402
from tf_strategies.collective.op_seeds import op_seeds_of_worker  # noqa: E402
from tf_strategies.keras import ownership  # noqa: E402
from tf_strategies.keras.seeds import SEEDS, spread  # noqa: E402


def number() -> tf.Tensor:
    return tf.cast(tf.distribute.get_replica_context().replica_id_in_sync_group, tf.float32)


def parts(strategy, value) -> list:
    return [np.asarray(part).tolist() for part in strategy.experimental_local_results(value)]


@pytest.mark.parametrize("in_graph", [False, True])
def test_what_replicas_write_is_averaged_after_the_step(strategy, in_graph: bool) -> None:
    with strategy.scope():
        mean = tf.Variable([8.0, 8.0], trainable=False)
        on_read = tf.Variable(
            4.0,
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.MEAN,
        )
        half = tf.Variable(0.0, trainable=False, dtype=tf.float16)

    def replica() -> None:
        mean.assign_sub([number(), 2.0])
        on_read.assign_add(number() * 2.0)
        half.assign(tf.cast(number() + 1.0, tf.float16))

    def once() -> None:
        strategy.run(replica)

    (tf.function(once) if in_graph else once)()
    assert parts(strategy, mean) == [[7.5, 6.0]] * 2
    assert parts(strategy, on_read) == [5.0] * 2
    assert parts(strategy, half) == [1.5] * 2


@pytest.mark.parametrize(
    "options",
    [
        {"trainable": True},
        {"dtype": tf.int32},
        {"name": "state_of_rows"},
        {
            "synchronization": tf.VariableSynchronization.ON_READ,
            "aggregation": tf.VariableAggregation.SUM,
        },
        {"aggregation": tf.VariableAggregation.ONLY_FIRST_REPLICA},
    ],
    ids=["weight", "integer", "state of rows", "metric", "first replica's"],
)
def test_what_is_no_statistic_is_left_alone(strategy, options: dict) -> None:
    with strategy.scope():
        variable = tf.Variable(0, **{"trainable": False, "dtype": tf.float32, **options})
    if options.get("name") == "state_of_rows":
        ownership.give_to_replica(variable)
    strategy.run(lambda: variable.assign(tf.cast(number() * 2, variable.dtype)))
    first_only = variable.aggregation == tf.VariableAggregation.ONLY_FIRST_REPLICA
    assert parts(strategy, variable) == ([0, 0] if first_only else [0, 2])


def test_a_variable_that_only_one_of_two_steps_writes(strategy) -> None:
    with strategy.scope():
        variables = [tf.Variable(float(start), trainable=False) for start in (0, 10)]

    @tf.function
    def step() -> None:
        strategy.run(lambda: variables[0].assign_add(number()))
        strategy.run(lambda: variables[1].assign_add(variables[0] + number()))

    step()
    assert [parts(strategy, variable) for variable in variables] == [[0.5, 0.5], [11.0, 11.0]]


def test_a_variable_of_another_scope_is_refused(strategy) -> None:
    outside = tf.Variable(1.0, name="outside")
    with (
        strategy.scope(),
        pytest.raises(ValueError, match=r"'outside:0'.*was made outside of this strategy's scope"),
    ):
        strategy.extended.update(outside, lambda variable: variable.assign(2.0))


def test_one_replica_merges_inside_a_condition() -> None:
    strategy = CollectiveAllReduceStrategy(devices=["CPU:0"])

    @tf.function
    def step(wanted: tf.Tensor) -> tf.Tensor:
        def replica() -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            return tf.cond(
                wanted, lambda: context.all_reduce("SUM", tf.constant(3.0)), lambda: tf.constant(0.0)
            )

        return strategy.run(replica)

    assert [float(step(tf.constant(wanted))) for wanted in (True, False)] == [3.0, 0.0]


def test_a_tf_function_given_to_run_keeps_its_signature_and_is_traced_once(strategy) -> None:
    traced = []

    @tf.function(input_signature=[tf.TensorSpec([None])])
    def step(values: tf.Tensor) -> tf.Tensor:
        traced.append(1)
        return tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(values))

    for length in (2, 3):
        assert parts(strategy, strategy.run(step, args=(tf.ones([length]),))) == [2.0 * length] * 2
    assert len(traced) == 2  # once for each replica


@pytest.mark.parametrize("in_graph", [False, True])
def test_operations_draw_by_the_global_seed_and_the_rank(in_graph: bool) -> None:
    def drawn(rank: int) -> list:
        tf.random.set_seed(1)

        def once() -> tf.Tensor:
            with op_seeds_of_worker(rank):
                return tf.random.uniform([4])

        return (tf.function(once) if in_graph else once)().numpy().tolist()

    assert drawn(0) == drawn(0) and drawn(1) == drawn(1)
    assert len({tuple(drawn(rank)) for rank in range(4)}) == 4
    tf.random.set_seed(1)
    expected = (tf.function(lambda: tf.random.uniform([4])) if in_graph else lambda: tf.random.uniform([4]))()
    assert drawn(0) == expected.numpy().tolist()


def test_seeds_of_replicas_are_far_apart() -> None:
    offsets = [spread(replica) for replica in range(4097)]
    assert offsets[0] == 0 and len(set(offsets)) == 4097 and max(offsets) < SEEDS
    assert min(abs(a - b) for a, b in zip(sorted(offsets), sorted(offsets)[1:])) > 100_000
