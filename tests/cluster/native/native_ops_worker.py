"""One worker of test_native_ops.py: runs every collective and compares with NumPy."""

from __future__ import annotations

import sys
from typing import Callable

import ml_dtypes
import numpy as np
import tensorflow as tf

from tests.support.checks import run_checks
from tf_strategies.cluster import Cluster
from tf_strategies.native import collective_ops
from tf_strategies.native.communicator import Communicator
from tf_strategies.options import CommunicationOptions

FLOATS = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
DTYPES = (*FLOATS, np.int32, np.int64)


def input_of(rank: int, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Differs by rank and by index; small integers, so that sums are exact in every dtype."""
    count = int(np.prod(shape))
    return ((np.arange(count) % 11 + 1) * (rank + 1) - 5 * rank).astype(dtype).reshape(shape)


def expect_equal(found: tf.Tensor, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(found.numpy().astype(np.float64), expected.astype(np.float64))


def both_modes(function: Callable[[], list[tf.Tensor]]) -> list[list[tf.Tensor]]:
    return [function(), tf.function(function)()]


def check_reductions_of_all_dtypes(group: Communicator) -> None:
    for dtype in DTYPES:
        inputs = [input_of(rank, (3, 7), dtype).astype(np.float64) for rank in range(group.size)]
        mean = sum(inputs) / group.size
        if dtype in (np.int32, np.int64):
            mean = np.trunc(mean)
        expected = {
            "sum": sum(inputs),
            "mean": mean.astype(dtype),
            "min": np.min(inputs, 0),
            "max": np.max(inputs, 0),
        }
        for reduction, values in expected.items():
            for (found,) in both_modes(
                lambda: collective_ops.all_reduce(
                    [tf.constant(input_of(group.rank, (3, 7), dtype))],
                    communicator=group,
                    reduction=reduction,
                    name=f"{reduction} {np.dtype(dtype).name}",
                )
            ):
                expect_equal(found, values)


def check_packs_of_different_shapes(group: Communicator) -> None:
    shapes = [(5,), (), (2, 3, 4), (0, 3), (129,)]
    for found in both_modes(
        lambda: collective_ops.all_reduce(
            [tf.constant(input_of(group.rank, shape, np.float32)) for shape in shapes],
            communicator=group,
            name="pack",
        )
    ):
        for tensor, shape in zip(found, shapes):
            assert tensor.shape == shape, (tensor.shape, shape)
            expect_equal(tensor, sum(input_of(rank, shape, np.float32) for rank in range(group.size)))


def check_the_input_keeps_its_value(group: Communicator) -> None:
    variable = tf.Variable(input_of(group.rank, (1000,), np.float32))
    tensor = tf.constant(input_of(group.rank, (1000,), np.float32))
    collective_ops.all_reduce([variable.read_value()], communicator=group, name="variable")
    collective_ops.all_reduce([tensor], communicator=group, name="tensor")
    expect_equal(variable.value(), input_of(group.rank, (1000,), np.float32))
    expect_equal(tensor, input_of(group.rank, (1000,), np.float32))


def check_results_feed_the_next_operation(group: Communicator) -> None:
    @tf.function
    def loop(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(5):
            x = collective_ops.all_reduce([x], communicator=group, name="loop")[0]
            x = tf.linalg.matmul(x, tf.eye(16)) / float(group.size)
        return x

    expect_equal(loop(tf.ones([16, 16])), np.ones([16, 16]))


def check_views_of_a_pack_are_aligned_for_vector_code(group: Communicator) -> None:
    @tf.function
    def reduce_and_multiply(a: tf.Tensor, b: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        a, b = collective_ops.all_reduce([a, b], communicator=group, name="odd")
        return tf.linalg.matmul(a, a), tf.exp(b * 0.0) + b

    a, b = reduce_and_multiply(tf.ones([3, 3]), tf.ones([33, 5]))
    expect_equal(a, np.full([3, 3], 3.0 * group.size**2))
    expect_equal(b, np.full([33, 5], 1.0 + group.size))


def check_many_collectives_in_one_function(group: Communicator) -> None:
    @tf.function
    def many() -> list[tf.Tensor]:
        tensors = [tf.constant(input_of(group.rank, (1000 + i,), np.float32)) for i in range(30)]
        return [
            collective_ops.all_reduce([tensor], communicator=group, name=f"many/{i}")[0]
            for i, tensor in enumerate(tensors)
        ]

    for i, found in enumerate(many()):
        expect_equal(found, sum(input_of(rank, (1000 + i,), np.float32) for rank in range(group.size)))


def check_a_worker_that_traces_once_more_still_matches(group: Communicator) -> None:
    @tf.function
    def total(x: tf.Tensor) -> tf.Tensor:
        return collective_ops.all_reduce([tf.reduce_sum(x)], communicator=group, name="retraced")[0]

    for lengths in ([4] * group.size, [5, *[4] * (group.size - 1)]):
        assert total(tf.ones([lengths[group.rank]])).numpy() == sum(lengths)


def check_gradients_flow_back_to_every_worker(group: Communicator) -> None:
    for reduction, scale in (("sum", float(group.size)), ("mean", 1.0)):
        x = tf.constant([1.0, 2.0, 3.0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            (total,) = collective_ops.all_reduce(
                [x * x], communicator=group, reduction=reduction, name="forward"
            )
            loss = tf.reduce_sum(total)
        expect_equal(tape.gradient(loss, x), 2.0 * np.array([1, 2, 3]) * scale)
    x = tf.constant([1.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = collective_ops.all_reduce([x], communicator=group, reduction="max", name="peak")[0]
    try:
        tape.gradient(loss, x)
    except LookupError as error:
        assert "'max' has no gradient" in str(error), error
    else:
        raise AssertionError("the gradient of max was not refused")


def check_broadcast_takes_the_roots_value(group: Communicator) -> None:
    for dtype in (*DTYPES, np.bool_, np.uint8, np.complex64):
        for root in range(group.size):
            values = [(np.arange(10) * (rank + 3) % 5).astype(dtype) for rank in range(group.size)]
            found = collective_ops.broadcast(
                tf.constant(values[group.rank]), communicator=group, root=root, name=f"from {root}"
            )
            np.testing.assert_array_equal(found.numpy(), values[root])


def check_all_gather_joins_different_first_dimensions(group: Communicator) -> None:
    for dtype in (*DTYPES, np.bool_):
        parts = [input_of(rank, (2 * rank, 3), np.int32).astype(dtype) for rank in range(group.size)]
        for (found,) in both_modes(
            lambda: [
                collective_ops.all_gather(tf.constant(parts[group.rank]), communicator=group, name="parts")
            ]
        ):
            expect_equal(found, np.concatenate(parts))


def check_all_to_all_brings_each_worker_its_rows(group: Communicator) -> None:
    for dtype in (*DTYPES, np.bool_, np.uint8, np.complex64):
        for step in range(3):
            # By sender and receiver; all, some and none of them zero.
            lengths = np.array(
                [[(i + 2 * j) % 4 * step for j in range(group.size)] for i in range(group.size)]
            )
            sent = [
                input_of(rank, (lengths[rank].sum(), 3), np.int32).astype(dtype) for rank in range(group.size)
            ]
            starts = np.cumsum(lengths, axis=1) - lengths
            mine = [
                rows[start[group.rank] : start[group.rank] + length[group.rank]]
                for rows, start, length in zip(sent, starts, lengths)
            ]
            for found in both_modes(
                lambda: collective_ops.all_to_all(
                    tf.constant(sent[group.rank]), lengths[group.rank], communicator=group, name="rows"
                )
            ):
                np.testing.assert_array_equal(found.received.numpy(), np.concatenate(mine))
                np.testing.assert_array_equal(found.lengths.numpy(), lengths[:, group.rank])


def check_all_to_all_moves_large_segments_and_counts_them(group: Communicator) -> None:
    rows = 100_000 + 1000 * group.rank
    before = group.stats()
    found = collective_ops.all_to_all(
        tf.repeat(tf.range(group.size) + 10 * group.rank, rows),
        [rows] * group.size,
        communicator=group,
        name="large",
    )
    lengths = [100_000 + 1000 * rank for rank in range(group.size)]
    np.testing.assert_array_equal(
        found.received, np.repeat([10 * rank + group.rank for rank in range(group.size)], lengths)
    )
    after = group.stats()
    others = sum(lengths) - rows
    assert 4 * others <= after["bytes_received"] - before["bytes_received"] < 4 * others + 1000
    counted = [
        sum(each["bytes"] for each in stats["collectives"] if each["kind"] == "all_to_all")
        for stats in (before, after)
    ]
    assert counted[1] - counted[0] == 4 * sum(lengths) + 8 * group.size


def check_shapes_are_known_while_tracing(group: Communicator) -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 3]), tf.TensorSpec([4])])
    def shapes(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
        gathered = collective_ops.all_gather(a, communicator=group, name="shapes")
        reduced = collective_ops.all_reduce([a, b], communicator=group, name="shapes")
        assert gathered.shape.as_list() == [None, 3], gathered.shape
        rows = [tf.shape(a)[0], *[0] * (group.size - 1)]
        received = collective_ops.all_to_all(a, rows, communicator=group, name="shapes")
        assert received.received.shape.as_list() == [None, 3], received
        assert received.lengths.shape.as_list() == [group.size], received
        assert reduced[0].shape.as_list() == [None, 3] and reduced[1].shape.as_list() == [4], reduced
        return tf.reduce_sum(gathered) + tf.reduce_sum(reduced[1])

    shapes(tf.ones([2, 3]), tf.ones([4]))


def check_barrier_and_bad_input(group: Communicator) -> None:
    collective_ops.barrier(communicator=group, name="meet")
    refused = (TypeError, ValueError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError)
    for bad in (
        lambda: collective_ops.all_gather(tf.constant(1.0), communicator=group, name="scalar"),
        lambda: collective_ops.all_reduce([tf.constant("text")], communicator=group, name="text"),
        lambda: collective_ops.broadcast(tf.constant([1]), communicator=group, root=group.size, name="root"),
    ):
        try:
            bad()
        except refused:
            continue
        raise AssertionError("bad input was accepted")


def main() -> None:
    cluster = Cluster.from_tf_config()
    assert cluster is not None
    timeout = float(sys.argv[2]) if len(sys.argv) > 2 else 60
    group = Communicator.connect(cluster, CommunicationOptions(timeout=timeout, transport=sys.argv[1]))
    run_checks(globals(), group)
    stats = group.stats()
    assert stats["bytes_sent"] > 0 and stats["bytes_received"] > 0, stats
    print("transport:", stats["transport"])
    group.close()


if __name__ == "__main__":
    main()
