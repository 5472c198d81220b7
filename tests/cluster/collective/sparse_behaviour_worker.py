"""One of several workers that add up IndexedSlices in every way there is.

python -m tests.cluster.collective.sparse_behaviour_worker LOCAL_REPLICAS
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow as tf

from tests.support.checks import run_checks
from tests.support.replicas import on_cpus, require_equal_everywhere
from tf_strategies.collective.exchange import sparse


class Table(NamedTuple):
    """A table, and how many rows each replica has of it; the rows have small whole numbers, whose sums are exact."""

    rows: int
    row: tuple = (3,)
    dtype: tf.DType = tf.float32
    indices: tf.DType = tf.int32
    each_has: tuple = (40, 0, 25, 7, 33, 1)
    shape_known: bool = True


TABLES = [
    Table(50),
    Table(30, row=(), indices=tf.int64),
    Table(40, row=(2, 3), dtype=tf.float64, each_has=(3, 90, 0, 0, 5, 60)),
    Table(20, dtype=tf.float16, indices=tf.int64),
    Table(20, dtype=tf.bfloat16, each_has=(5, 2, 0, 1, 3, 2)),
    Table(9, each_has=(0,) * 6),
    Table(25, dtype=tf.int32, each_has=(0, 0, 4, 0, 0, 0)),
    Table(60, shape_known=False),
]
ROUNDING = {tf.float32: 1e-6, tf.float64: 1e-12, tf.float16: 1e-3, tf.bfloat16: 1e-2, tf.int32: 0}
ROUTES = {
    "by the rule": {},
    "row by row": {"DENSE_FROM": float("inf"), "SMALL_TABLE_BYTES": 0},
    "dense": {"DENSE_FROM": -1.0, "SMALL_TABLE_BYTES": 0},
    "in the packs": {"SMALL_TABLE_BYTES": 1 << 40},
}


@contextlib.contextmanager
def route(name: str):
    before = {key: getattr(sparse, key) for key in ROUTES[name]}
    for key, value in ROUTES[name].items():
        setattr(sparse, key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            setattr(sparse, key, value)


def part_of(replica: int, number: int, table: Table) -> tuple:
    """The indices and values that a replica has of a table."""
    generator = np.random.default_rng([replica, number])
    count = table.each_has[replica]
    indices = generator.integers(0, table.rows // 2, count) * 2
    return indices, generator.integers(-3, 4, (count, *table.row)) + 0.5 * (table.dtype != tf.int32)


def whole(strategy, number: int, table: Table) -> tuple:
    """The sum over all replicas in NumPy, and the rows that anybody has."""
    total = np.zeros([table.rows, *table.row])
    touched: set = set()
    for replica in range(strategy.num_replicas_in_sync):
        indices, values = part_of(replica, number, table)
        np.add.at(total, indices, values)
        touched |= set(indices.tolist())
    return total, touched


def reduced(strategy, tables: list, how: str, graph: bool, own: Optional[Any] = None) -> list:
    """For each local replica the slices that `ReplicaContext.all_reduce` gives, on numbers of rows unknown to the graph."""
    own = own or part_of

    def given(number, table, column):
        dtype = (table.indices, table.dtype)[column]
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(own(context.replica_id_in_sync_group, number, table)[column], dtype)
        )

    def replica(parts, skip):
        slices = [
            tf.IndexedSlices(
                values[skip:],
                indices[skip:],
                tf.constant([table.rows, *table.row], tf.int32) if table.shape_known else None,
            )
            for (indices, values), table in zip(parts, tables)
        ]
        return tf.distribute.get_replica_context().all_reduce(how, slices)

    def step(parts, skip):
        results = strategy.run(replica, args=(parts, skip))
        local = [strategy.experimental_local_results(each) for each in results]
        return [[(part.indices, part.values) for part in each] for each in local]

    values = [(given(*each, 0), given(*each, 1)) for each in enumerate(tables)]
    return (tf.function(step) if graph else step)(values, tf.constant(0))


def require_sums(strategy, tables: list, how: str, results: list) -> None:
    for number, (table, replicas) in enumerate(zip(tables, results)):
        total, touched = whole(strategy, number, table)
        total = total / (strategy.num_replicas_in_sync if how == "MEAN" else 1)
        for indices, values in replicas:
            indices, numbers = indices.numpy(), tf.cast(values, tf.float64).numpy()
            assert indices.dtype == table.indices.as_numpy_dtype and values.dtype == table.dtype
            assert sorted(indices.tolist()) == sorted(touched), (table, indices)
            np.testing.assert_allclose(
                numbers, total[indices], rtol=ROUNDING[table.dtype], err_msg=str(table)
            )
            require_equal_everywhere(strategy, [numbers])


def check_every_dtype_rank_and_route_gives_the_sum_of_the_rows_somebody_has(strategy) -> None:
    for name in ROUTES:
        with route(name):
            for graph in (True, False):
                require_sums(strategy, TABLES, "SUM", reduced(strategy, TABLES, "SUM", graph))


def check_means(strategy) -> None:
    tables = [table for table in TABLES if table.dtype != tf.int32]
    for name in ROUTES:
        with route(name):
            require_sums(strategy, tables, "MEAN", reduced(strategy, tables, "MEAN", graph=True))


def check_tensors_and_slices_in_one_batch(strategy) -> None:
    def replica(value):
        slices = tf.IndexedSlices(tf.ones([2, 4]) * value, tf.constant([1, 1]), tf.constant([1 << 20, 4]))
        small = tf.IndexedSlices(tf.ones([1]) * value, tf.constant([3]), tf.constant([5]))
        batch = [value, slices, tf.fill([3], value), small]
        return tf.distribute.get_replica_context().all_reduce("SUM", batch)

    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant(context.replica_id_in_sync_group + 1.0)
    )
    count = strategy.num_replicas_in_sync
    expected = count * (count + 1) / 2
    results = tf.function(lambda each: strategy.run(replica, args=(each,)))(values)
    scalar, slices, vector, small = (strategy.experimental_local_results(each)[0] for each in results)
    assert float(scalar) == expected and vector.numpy().tolist() == [expected] * 3
    assert slices.indices.numpy().tolist() == [1] and slices.values.numpy().tolist() == [[2 * expected] * 4]
    assert small.indices.numpy().tolist() == [3] and small.values.numpy().tolist() == [expected]


def check_what_is_not_a_number_stays_so(strategy) -> None:
    special = [float("nan"), float("inf"), float("-inf"), 1.0]

    def own(replica, number, table):
        return np.arange(4) * 2, np.array([[value if replica == 1 else 1.0] * 3 for value in special])

    for name in ROUTES:
        with route(name):
            for replicas in reduced(strategy, [Table(50)], "SUM", graph=True, own=own):
                for indices, values in replicas:
                    by_index = dict(zip(indices.numpy().tolist(), values.numpy()[:, 0]))
                    assert np.isnan(by_index[0]) and by_index[2] == np.inf and by_index[4] == -np.inf
                    assert by_index[6] == strategy.num_replicas_in_sync


def check_an_index_out_of_range_is_refused_on_all_workers(strategy) -> None:
    variable = tf.Variable(tf.zeros([50, 3]))
    for wrong in (50, 70, -1):

        def own(replica, number, table, wrong=wrong):
            return np.array([2, wrong if replica == 1 else 3]), np.ones([2, 3])

        for name in ROUTES:
            with route(name):
                ((indices, values),) = reduced(strategy, [Table(50)], "SUM", graph=True, own=own)[0][:1]
                try:
                    variable.scatter_sub(tf.IndexedSlices(values, indices))
                except tf.errors.InvalidArgumentError as error:
                    assert "not in [0, 50)" in str(error) or "out of range" in str(error), error
                else:
                    raise AssertionError(f"index {wrong} of 50 was applied")


def check_an_optimizer_that_skips_untouched_rows_does_the_same_whichever_way_the_rows_came(strategy) -> None:
    kept = {}
    for name in ROUTES:
        with route(name):
            table = Table(50, each_has=(4, 2, 1, 3, 2, 5))
            ((indices, values),) = reduced(strategy, [table], "SUM", graph=True)[0][:1]
            variable, speed = tf.Variable(tf.ones([50, 3])), tf.Variable(tf.ones([50, 3]))
            tf.raw_ops.ResourceSparseApplyMomentum(
                var=variable.handle,
                accum=speed.handle,
                lr=0.5,
                grad=values,
                indices=indices,
                momentum=0.5,
            )
            kept[name] = (variable.numpy(), speed.numpy())
    _, touched = whole(strategy, 0, table)
    for variable, speed in kept.values():
        assert set(np.flatnonzero((speed != 1).any(axis=1))) == touched
        np.testing.assert_array_equal(variable, kept["dense"][0])
        np.testing.assert_array_equal(speed, kept["dense"][1])


def bytes_handed_in(strategy) -> np.ndarray:
    """All-reduced and gathered bytes so far."""
    entries = strategy.communication_stats().collectives
    kinds = ("all_reduce", "all_gather")
    return np.array([sum(each.bytes for each in entries if each.kind == kind) for kind in kinds])


def check_the_bytes_are_those_of_merged_rows_or_of_the_table_as_the_rule_says(strategy) -> None:
    rows, width = 303, 99  # a pack pads its tensors to 64 bytes: rows + 1 is a multiple of 16
    row_bytes, table_bytes = 4 * width + 4, 4 * (width + 1) * (rows + 1)
    assert table_bytes > sparse.SMALL_TABLE_BYTES
    most = int(sparse.DENSE_FROM * table_bytes / row_bytes / strategy.size)
    agreeing = 8 * strategy.size
    gathering = agreeing + 8 * strategy.size  # the operation exchanges how much each worker sends
    assert most < rows, "with this many workers no table goes dense"
    for distinct, expected in (
        (10, [gathering, strategy.size * 10 * row_bytes]),
        (most, [gathering, strategy.size * most * row_bytes]),
        (most + 1, [agreeing + table_bytes, 0]),
        (0, [agreeing, 0]),
    ):

        def own(replica, number, table, distinct=distinct):
            return np.tile(np.arange(distinct), 3), np.ones([3 * distinct, width])

        for graph in (True, False):
            before = bytes_handed_in(strategy)
            results = reduced(strategy, [Table(rows, row=(width,))], "SUM", graph, own=own)
            np.testing.assert_array_equal(bytes_handed_in(strategy) - before, expected)
            for indices, values in results[0]:
                assert sorted(indices.numpy().tolist()) == list(range(distinct))
                np.testing.assert_array_equal(
                    values, np.full([distinct, width], 3.0 * strategy.num_replicas_in_sync)
                )


def check_many_tables_share_their_messages(strategy) -> None:
    tables = [Table(9000 + number, each_has=(5, 4, 3, 2, 1, 0)) for number in range(4)]
    before = strategy.communication_stats().calls
    require = reduced(strategy, tables, "SUM", graph=True)
    calls = strategy.communication_stats().calls - before
    require_sums(strategy, tables, "SUM", require)
    before = strategy.communication_stats().calls
    reduced(strategy, tables[:1], "SUM", graph=True)
    assert calls == strategy.communication_stats().calls - before


def check_another_dtype_on_one_worker_is_an_error_on_all(strategy) -> None:
    indices = tf.int64 if strategy.rank == 1 else tf.int32
    try:
        reduced(strategy, [Table(50, indices=indices, shape_known=False)], "SUM", graph=True)
    except tf.errors.InvalidArgumentError as error:
        assert "by int32" in str(error) and "by int64" in str(error) and "worker 1 (" in str(error), error
    else:
        raise AssertionError("no error")


def main(local: int) -> None:
    strategy = on_cpus(local)
    run_checks(globals(), strategy)
    strategy.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
