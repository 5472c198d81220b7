"""Dense vectors in few bits: eager and in graphs, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_strategies.native.quantize import quantize, sum_quantized

METHODS = ["stochastic8", "stochastic4", "ternary", "sign"]


def normal(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(count).astype("float32")


def scales(gradient: np.ndarray, method: str, bucket: int) -> np.ndarray:
    """The scale of every element, [n]."""
    padded = np.pad(np.abs(gradient.astype("float64")), (0, -len(gradient) % bucket), constant_values=np.nan)
    buckets = padded.reshape(-1, bucket)
    of_bucket = {
        "stochastic8": lambda: np.nanmax(buckets, axis=1) / 127,
        "stochastic4": lambda: np.nanmax(buckets, axis=1) / 7,
        "ternary": lambda: np.nanmax(buckets, axis=1),
        "sign": lambda: np.nanmean(buckets, axis=1),
    }[method]()
    return np.repeat(of_bucket, bucket)[: len(gradient)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("count", "bucket"), [(1, 512), (1000, 1), (1000, 300), (200_000, 512)])
@pytest.mark.parametrize("in_graph", [False, True])
def test_what_is_read_are_multiples_of_the_scale(
    method: str, count: int, bucket: int, in_graph: bool
) -> None:
    def send(gradient: tf.Tensor) -> tf.Tensor:
        return sum_quantized(quantize(gradient, [3, 4], method, bucket=bucket), count)

    gradient = normal(count, 1)
    found = (tf.function(send) if in_graph else send)(tf.constant(gradient)).numpy()
    scale = scales(gradient, method, bucket)
    levels = found / scale
    np.testing.assert_allclose(levels, np.round(levels), atol=1e-4)
    if method in ("stochastic8", "stochastic4"):
        assert np.all(np.abs(found - gradient) < scale * 1.0001)
    elif method == "ternary":
        assert set(np.round(levels)) <= {-1, 0, 1}
        assert np.all(found * gradient >= 0)
    else:
        np.testing.assert_array_equal(np.round(levels), np.where(gradient < 0, -1, 1))


@pytest.mark.parametrize("method", METHODS)
def test_messages_add_up_in_rank_order(method: str) -> None:
    messages = [quantize(normal(100_000, rank) * 10**rank, [rank, 0], method) for rank in range(4)]
    expected = np.zeros(100_000, "float32")
    for message in messages:
        expected += sum_quantized(message, 100_000).numpy()
    np.testing.assert_array_equal(sum_quantized(tf.concat(messages, axis=0), 100_000), expected)


@pytest.mark.parametrize("method", ["stochastic8", "stochastic4", "ternary"])
def test_the_mean_is_the_gradient(method: str) -> None:
    gradient = normal(512, 2)
    draws = [sum_quantized(quantize(gradient, [seed, 0], method), 512).numpy() for seed in range(1000)]
    scale = scales(gradient, method, 512)
    np.testing.assert_allclose(np.mean(draws, axis=0), gradient, atol=float(scale[0]) * 0.5 * 5 / 1000**0.5)


@pytest.mark.parametrize("method", ["stochastic8", "stochastic4", "ternary"])
def test_the_seed_decides(method: str) -> None:
    gradient = normal(5000, 3)
    first, again, other = (quantize(gradient, seed, method).numpy() for seed in ([1, 2], [1, 2], [1, -3]))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_not_finite_is_seen_by_all(method: str) -> None:
    gradient = normal(1000, 4)
    gradient[600] = np.inf
    found = sum_quantized(quantize(gradient, [0, 0], method, bucket=100), 1000)
    np.testing.assert_array_equal(np.isfinite(found), np.arange(1000) // 100 != 6)


@pytest.mark.parametrize(
    ("method", "bits"), [("stochastic8", 8), ("stochastic4", 4), ("ternary", 2), ("sign", 1)]
)
def test_the_length_is_known_in_graphs(method: str, bits: int) -> None:
    @tf.function
    def trace(gradient: tf.Tensor) -> tf.Tensor:
        message = quantize(gradient, [0, 0], method)
        assert message.shape == [32 + 8 * 4 + 4096 * bits // 8]
        assert sum_quantized(message, 4096).shape == [4096]
        return message

    assert len(trace(tf.ones([4096]))) == 64 + 512 * bits

    @tf.function(input_signature=[tf.TensorSpec([None])])
    def unknown(gradient: tf.Tensor) -> tf.Tensor:
        assert quantize(gradient, [0, 0], method).shape == [None]
        return gradient

    unknown(tf.ones([3]))


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize(
    ("gradient", "seed", "message"),
    [
        (tf.ones([2, 2]), [0, 0], r"gradient must be a vector; got shape \[2,2\]"),
        (tf.ones([2]), [0], r"seed must be a vector of 2 numbers; got shape \[1\]"),
        (tf.ones([2]), 0, r"seed must be a vector of 2 numbers; got shape \[\]"),
    ],
)
def test_bad_input_is_refused_with_the_values(gradient, seed, message: str, in_graph: bool) -> None:
    def encode(gradient, seed):
        return quantize(gradient, seed, "sign")

    shapeless = tf.function(encode, input_signature=[tf.TensorSpec(None), tf.TensorSpec(None, tf.int64)])
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        (shapeless if in_graph else encode)(gradient, tf.constant(seed, tf.int64))


@pytest.mark.parametrize("bucket", [0, -1, 2**31])
@pytest.mark.parametrize("in_graph", [False, True])
def test_a_bucket_without_elements_is_refused(bucket: int, in_graph: bool) -> None:
    def encode():
        return quantize(tf.ones([2]), [0, 0], "sign", bucket=bucket)

    with pytest.raises(
        (ValueError, tf.errors.InvalidArgumentError),
        match=f"bucket must be between 1 and 2147483647; got {bucket}",
    ):
        (tf.function(encode) if in_graph else encode)()


@pytest.mark.parametrize("in_graph", [False, True])
def test_damaged_messages_are_refused(in_graph: bool) -> None:
    good = quantize(tf.ones([5]), [0, 0], "stochastic8").numpy()
    shapeless = [tf.TensorSpec(None, tf.uint8), tf.TensorSpec(None, tf.int64)]
    read = tf.function(sum_quantized, input_signature=shapeless) if in_graph else sum_quantized
    unknown = good.copy()
    unknown[3] = 9
    for bytes_, count, message in [
        (good[:-1], 5, f"message 0, at byte 0, should have {len(good)} bytes; {len(good) - 1} are left"),
        (np.append(good, unknown), 5, f"message 1, at byte {len(good)}, is quantized by method 9"),
        (good, 6, "is of a vector of 5 elements, not 6"),
        (good, -1, "count must be between 0 and 281474976710656; got -1"),
    ]:
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            read(tf.constant(bytes_), tf.constant(count, tf.int64))


def test_another_dtype_or_method_is_refused() -> None:
    with pytest.raises((TypeError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError)):
        quantize(tf.ones([2], tf.float64), [0, 0], "sign")
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="median"):
        quantize(tf.ones([2]), [0, 0], "median")
