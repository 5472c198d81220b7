"""Packs hold every tensor once, in the order of backprop, within the limit."""

from __future__ import annotations

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from tf_strategies.collective.exchange.cross_device import CollectiveCrossDeviceOps
from tf_strategies.collective.exchange.devices import device_of_pack
from tf_strategies.collective.exchange.packing import SMALL_BYTES, plan_packs
from tf_strategies.collective.exchange.sparse_rows import HOST
from tf_strategies.slow_worker import BATCHES

LARGE = SMALL_BYTES
_TENSORS = st.lists(
    st.tuples(
        st.sampled_from(["float32", "float16", "int32"]),
        st.none() | st.integers(0, 200) | st.integers(LARGE, 2 * LARGE),
    )
)


def test_one_pack_holds_all_when_they_fit_last_variable_first() -> None:
    assert plan_packs([("f", 10), ("f", 20), ("f", 30)], bytes_per_pack=60) == [[2, 1, 0]]
    assert plan_packs([("f", LARGE), ("f", LARGE)], bytes_per_pack=2 * LARGE) == [[1, 0]]


def test_a_tensor_as_large_as_a_pack_goes_alone() -> None:
    assert plan_packs([("f", 1), ("f", 64), ("f", 2)], bytes_per_pack=64) == [[1], [2, 0]]


def test_a_full_pack_is_closed_before_it_exceeds_the_limit() -> None:
    assert plan_packs([("f", 3), ("f", 3), ("f", 3)], bytes_per_pack=8) == [[2, 1], [0]]


def test_large_tensors_do_not_wait_for_small_ones() -> None:
    """Kernels and biases of three layers: biases come last of all."""
    layers = [("f", 4 * LARGE), ("f", 4)] * 3
    assert plan_packs(layers, bytes_per_pack=4 * LARGE) == [[4], [2], [5, 3, 1], [0]]


def test_a_pack_of_large_tensors_is_not_held_open_while_others_pass() -> None:
    tensors = [("a", LARGE), ("b", 4 * LARGE), ("a", LARGE)]
    assert plan_packs(tensors, bytes_per_pack=4 * LARGE) == [[2], [1], [0]]


def test_dtypes_do_not_mix() -> None:
    assert plan_packs([("a", 4), ("b", 4), ("a", 4)], bytes_per_pack=100) == [[1], [2, 0]]


def test_a_tensor_of_unknown_size_goes_alone() -> None:
    assert plan_packs([("f", 1), ("f", None), ("f", 1)], bytes_per_pack=100) == [[1], [2, 0]]


def test_nothing_to_pack_is_no_pack() -> None:
    assert plan_packs([], bytes_per_pack=8) == []


@given(_TENSORS, st.integers(1, 300) | st.integers(LARGE, 4 * LARGE))
def test_each_tensor_is_in_one_pack_of_its_dtype_within_the_limit(tensors: list, limit: int) -> None:
    packs = plan_packs(tensors, limit)
    assert sorted(position for pack in packs for position in pack) == list(range(len(tensors)))
    for pack in packs:
        assert pack == sorted(pack, reverse=True)
        assert len({tensors[position][0] for position in pack}) == 1
        if len(pack) > 1:
            sizes = [tensors[position][1] for position in pack]
            assert sum(sizes) <= limit
            assert all(size < SMALL_BYTES for size in sizes) or all(size >= SMALL_BYTES for size in sizes)
            if sizes[0] >= SMALL_BYTES:
                assert sum(size or 0 for _, size in tensors[pack[-1] + 1 : pack[0] + 1]) < limit
    assert [pack[-1] for pack in packs] == sorted((pack[-1] for pack in packs), reverse=True)


@pytest.mark.parametrize(
    ("places", "dtype", "gpu", "expected"),
    [
        (["/GPU:1", "/GPU:1"], tf.float32, "/GPU:0", "/device:GPU:1"),
        (["/GPU:0", ""], tf.bfloat16, "/GPU:0", "/device:GPU:0"),
        (["", ""], tf.int64, "/device:GPU:0", "/device:GPU:0"),
        (["/GPU:0", "/CPU:0"], tf.float32, "/GPU:0", HOST),
        (["/GPU:0"], tf.int32, "/GPU:0", HOST),  # TensorFlow keeps it in the memory of the host
        (["/GPU:0"], tf.float32, "", HOST),  # without the code for GPUs
        (["", ""], tf.float32, "", HOST),
    ],
)
def test_packs_of_a_gpu_are_reduced_there(places: list, dtype: tf.DType, gpu: str, expected: str) -> None:
    with tf.Graph().as_default():
        tensors = []
        for place in places:
            with tf.device(place):
                tensors.append(tf.zeros([3], dtype))
        assert device_of_pack(tensors, gpu) == expected


class Names:
    """Two workers, of which the other adds nothing. Keeps the names of collectives."""

    size = 2

    def __init__(self) -> None:
        self.seen: list = []

    def all_reduce(self, tensors: list, name: str, layout: str) -> list:
        self.seen.append(name)
        return tensors


def test_the_number_of_batches_has_a_name_that_no_other_sum_has() -> None:
    group = Names()
    reductions = CollectiveCrossDeviceOps(group, bytes_per_pack=100)
    one = tf.ones([1, 1], tf.int64)
    for tensors in ([one], [tf.ones([], tf.int64)], [tf.ones([1, 1])], [one, one]):
        reductions.sum_between_workers(tensors)
    assert group.seen == [BATCHES, "pack 0 of 1", "pack 0 of 1", "pack 0 of 1"]
