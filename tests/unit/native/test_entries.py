"""Entries of vectors as messages: eager and in graphs, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_strategies.native.entries import encode_entries, encode_regions, merge_entries, sum_entries
from tf_strategies.native.top_k import top_k

FORMATS = ["float32", "float16", "int8"]


def entries_of(rank: int, count: int, k: int) -> tuple:
    generator = np.random.default_rng(rank)
    indices = np.sort(generator.choice(count, k, replace=False))
    return indices, generator.standard_normal(k).astype("float32")


@pytest.mark.parametrize("value_format", FORMATS)
@pytest.mark.parametrize(("count", "k"), [(1, 1), (10, 0), (1000, 300), (300_000, 3000)])
@pytest.mark.parametrize("in_graph", [False, True])
def test_messages_add_up_in_rank_order(value_format: str, count: int, k: int, in_graph: bool) -> None:
    def exchange(ranks: list) -> tuple:
        encoded = [encode_entries(*rank, count, value_format=value_format) for rank in ranks]
        messages = tf.concat([each.message for each in encoded], axis=0)
        return [each.sent for each in encoded], sum_entries(messages, count), merge_entries(messages, count)

    ranks = [entries_of(rank, count, k) for rank in range(4)]
    given = [(tf.constant(indices, tf.int64), tf.constant(values)) for indices, values in ranks]
    sent, found, merged = (tf.function(exchange) if in_graph else exchange)(given)
    expected = np.zeros(count, "float32")
    for (indices, values), read in zip(ranks, sent):
        np.testing.assert_allclose(read, values, atol=0 if value_format == "float32" else 0.02, rtol=0)
        expected[indices] += read.numpy()
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(merged.indices, np.unique([indices for indices, _ in ranks]))
    np.testing.assert_array_equal(merged.values, expected[merged.indices.numpy()])


@pytest.mark.parametrize(("value_format", "bytes_of_value"), [("float32", 4), ("float16", 2), ("int8", 1.02)])
def test_one_entry_in_a_hundred_takes_ten_bits_of_index(value_format: str, bytes_of_value: float) -> None:
    indices, values = entries_of(0, 1_000_000, 10_000)
    message = encode_entries(indices, values, 1_000_000, value_format=value_format).message
    assert len(message) < 10_000 * (bytes_of_value + 10 / 8) + 40


@pytest.mark.parametrize("value_format", FORMATS)
def test_what_is_not_finite_is_seen_by_all(value_format: str) -> None:
    values = tf.constant([1.0, np.inf, 2.0, np.nan, -np.inf])
    encoded = encode_entries(tf.range(5, dtype=tf.int64), values, 5, value_format=value_format)
    np.testing.assert_array_equal(np.isfinite(encoded.sent), [True, False, True, False, False])
    np.testing.assert_array_equal(sum_entries(encoded.message, 5), encoded.sent)


def test_tiny_sums_are_the_same_in_eager_mode_and_in_graphs() -> None:
    # The difference is subnormal, which TensorFlow's threads flush to zero.
    def difference() -> tf.Tensor:
        indices = tf.range(200_000, dtype=tf.int64)
        signed = [
            encode_entries(indices, tf.fill([200_000], value), 200_000) for value in (1.5e-38, -1.2e-38)
        ]
        return sum_entries(tf.concat([each.message for each in signed], axis=0), 200_000)

    np.testing.assert_array_equal(difference(), np.zeros(200_000))
    np.testing.assert_array_equal(tf.function(difference)(), np.zeros(200_000))


@pytest.mark.parametrize("value_format", FORMATS)
@pytest.mark.parametrize("in_graph", [False, True])
def test_regions_are_vectors_of_their_own(value_format: str, in_graph: bool) -> None:
    offsets = [0, 400, 400, 1000]
    indices, values = entries_of(3, 1000, 200)

    def encode(indices: tf.Tensor, values: tf.Tensor, offsets: tf.Tensor) -> tuple:
        return encode_regions(indices, values, offsets, value_format=value_format)

    found = (tf.function(encode) if in_graph else encode)(
        tf.constant(indices, tf.int64), tf.constant(values), tf.constant(offsets)
    )
    messages = tf.split(found.messages, found.lengths)
    for begin, end, message in zip(offsets, offsets[1:], messages):
        inside = (begin <= indices) & (indices < end)
        alone = encode_entries(
            indices[inside] - begin, values[inside], end - begin, value_format=value_format
        )
        np.testing.assert_array_equal(message, alone.message)
        np.testing.assert_array_equal(found.sent.numpy()[inside], alone.sent)


@pytest.mark.parametrize(
    ("indices", "offsets", "message"),
    [
        ([0, 4], [0, 2, 4], r"between 0 and count - 1, 3; indices\[1\] is 4"),
        ([2, 2], [0, 2, 4], r"strictly ascending; indices\[1\] is 2, after 2"),
        ([0, 1], [0, 4, 2], r"non-decreasing from 0; offsets\[2\] is 2"),
        ([0, 1], [0], r"one entry more than there are regions; got shape \[1\]"),
        ([0, 1], [[0, 4]], r"one entry more than there are regions; got shape \[1,2\]"),
        ([0], [0, 4], r"vectors of one length; got shapes \[1\] and \[2\]"),
    ],
)
def test_bad_regions_are_refused_with_the_values(indices, offsets, message: str) -> None:
    shapeless = tf.function(
        lambda indices, offsets: encode_regions(indices, tf.ones([2]), offsets).lengths,
        input_signature=[tf.TensorSpec(None, tf.int64), tf.TensorSpec(None, tf.int64)],
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        shapeless(tf.constant(indices, tf.int64), tf.constant(offsets, tf.int64))


def test_with_error_feedback_nothing_is_lost() -> None:
    residual = tf.zeros([5000])
    received, total = np.zeros(5000), np.zeros(5000)
    for step in range(20):
        gradient = np.random.default_rng(step).standard_normal(5000).astype("float32")
        selected = top_k(gradient, residual, 250)
        encoded = encode_entries(selected.indices, selected.values, 5000, value_format="int8")
        lost = tf.expand_dims(selected.indices, 1), selected.values - encoded.sent
        residual = tf.tensor_scatter_nd_add(selected.remaining, *lost)
        received += sum_entries(encoded.message, 5000).numpy()
        total += gradient
    np.testing.assert_allclose(received + residual, total, atol=1e-4)


def test_shapes_are_known_in_graphs() -> None:
    @tf.function
    def trace(indices: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        encoded = encode_entries(indices, values, 9)
        assert encoded.message.shape == [None]
        assert encoded.sent.shape == [2]
        assert sum_entries(encoded.message, 9).shape == [9]
        assert merge_entries(encoded.message, 9).values.shape == [None]
        regions = encode_regions(indices, values, [0, 4, 8, 9])
        assert regions.messages.shape == [None]
        assert regions.lengths.shape == [3]
        assert regions.sent.shape == [2]
        return encoded.sent

    trace(tf.constant([0, 8], tf.int64), tf.ones([2]))


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize(
    ("indices", "values", "count", "message"),
    [
        ([0, 4], [1.0, 1.0], 4, r"between 0 and count - 1, 3; indices\[1\] is 4"),
        ([2, 2], [1.0, 1.0], 4, r"strictly ascending; indices\[1\] is 2, after 2"),
        ([0, 1], [1.0, 1.0], 1, "there are 2 indices, of 1 elements"),
        ([], [], -1, "count must be between 0 and 281474976710656; got -1"),
        ([0], [1.0], [4], r"count must be a scalar; got shape \[1\]"),
        ([0, 1], [1.0], 4, r"vectors of one length; got shapes \[2\] and \[1\]"),
        ([[0]], [[1.0]], 4, r"vectors of one length; got shapes \[1,1\] and \[1,1\]"),
    ],
)
def test_bad_input_is_refused_with_the_values(indices, values, count, message: str, in_graph: bool) -> None:
    def encode(indices, values, count):
        return encode_entries(indices, values, count).message

    shapeless = tf.function(
        encode,
        input_signature=[tf.TensorSpec(None, tf.int64), tf.TensorSpec(None), tf.TensorSpec(None, tf.int64)],
    )
    given = (tf.constant(indices, tf.int64), tf.constant(values, tf.float32), tf.constant(count, tf.int64))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        (shapeless if in_graph else encode)(*given)


@pytest.mark.parametrize("read", [sum_entries, merge_entries])
@pytest.mark.parametrize("in_graph", [False, True])
def test_damaged_messages_are_refused(read, in_graph: bool) -> None:
    good = encode_entries(tf.constant([1, 3], tf.int64), tf.constant([1.0, 2.0]), 5).message.numpy()
    shapeless = [tf.TensorSpec(None, tf.uint8), tf.TensorSpec(None, tf.int64)]
    if in_graph:
        read = tf.function(read, input_signature=shapeless)
    for bytes_, count, message in [
        (good[:-1], 5, f"message 0, at byte 0, should have {len(good)} bytes; {len(good) - 1} are left"),
        (np.append(good, good[:7]), 5, f"message 1, at byte {len(good)}, is cut: 7 bytes are left"),
        (good, 6, "is of a vector of 5 elements, not 6"),
        (good, -1, "count must be between 0 and 281474976710656; got -1"),
        (good[None], 5, r"messages must be a vector of bytes; got shape \[1,"),
    ]:
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            read(tf.constant(bytes_), tf.constant(count, tf.int64))


def test_another_dtype_or_format_is_refused() -> None:
    indices = tf.range(2, dtype=tf.int64)
    with pytest.raises((TypeError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError)):
        encode_entries(indices, tf.ones([2], tf.float64), 5)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="int4"):
        encode_entries(indices, tf.ones([2]), 5, value_format="int4")
