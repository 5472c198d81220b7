"""Top-k gradient selection as an operation: eager and in graphs, against sorting in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tf_strategies.native.top_k import top_k


def expected(gradient: np.ndarray, residual: np.ndarray, k: int) -> tuple:
    """Indices, values and what remains, the obvious way."""
    sums = (gradient.astype(np.float32) + residual).ravel()
    indices = np.sort(np.argsort(-np.abs(sums), kind="stable")[:k])
    remaining = sums.copy()
    remaining[indices] = 0
    return indices, sums[indices], remaining.reshape(residual.shape)


def gradient_and_residual(shape: tuple, dtype: tf.DType) -> tuple:
    generator = np.random.default_rng(4)
    gradient = tf.cast(generator.standard_normal(shape), dtype)
    return gradient, generator.standard_normal(shape).astype("float32")


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16])
@pytest.mark.parametrize(
    ("shape", "k"), [((7,), 2), ((30, 40), 0), ((30, 40), 1200), ((300, 700), 210), ((), 1)]
)
@pytest.mark.parametrize("in_graph", [False, True])
def test_selects_what_sorting_selects(dtype: tf.DType, shape: tuple, k: int, in_graph: bool) -> None:
    gradient, residual = gradient_and_residual(shape, dtype)
    function = tf.function(top_k) if in_graph else top_k
    found = function(gradient, tf.constant(residual), k)
    for part, right in zip(found, expected(gradient.numpy(), residual, k)):
        np.testing.assert_array_equal(part, right)
    assert found.remaining.shape == shape


def test_what_remains_is_sent_later() -> None:
    generator = np.random.default_rng(5)
    residual = tf.Variable(tf.zeros([50_000]))
    received, total = np.zeros(50_000), np.zeros(50_000)

    @tf.function
    def step(gradient):
        selected = top_k(gradient, residual, 500)
        residual.assign(selected.remaining)
        return selected.indices, selected.values

    for _ in range(30):
        gradient = generator.integers(-99, 100, 50_000).astype("float32")
        indices, values = step(gradient)
        received[indices.numpy()] += values.numpy()
        total += gradient
    np.testing.assert_array_equal(received + residual.numpy(), total)


def test_the_residual_given_is_not_changed() -> None:
    residual = tf.ones([10])
    top_k(tf.range(10.0), residual, 3)
    np.testing.assert_array_equal(residual, np.ones(10))


def test_sampled_selects_about_k_of_the_largest() -> None:
    gradient, residual = gradient_and_residual((400_000,), tf.float32)
    found = top_k(gradient, residual, 4000, sampled=True)
    assert 3200 <= len(found.indices) <= 5000
    np.testing.assert_array_equal(found.indices, expected(gradient.numpy(), residual, len(found.indices))[0])


def test_shapes_are_known_in_graphs() -> None:
    @tf.function
    def select(gradient, residual):
        exact, sampled = top_k(gradient, residual, 3), top_k(gradient, residual, 3, sampled=True)
        assert exact.indices.shape == exact.values.shape == [3]
        assert sampled.indices.shape == [None]
        assert exact.remaining.shape == [4, 5]
        return exact.values

    assert select(tf.ones([4, 5]), tf.zeros([4, 5])).shape == [3]


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize(
    ("residual", "k", "message"),
    [
        (tf.zeros([5]), -1, "k must be between 0 and the number of elements of gradient, 5; got -1"),
        (tf.zeros([5]), 6, "k must be between 0 and the number of elements of gradient, 5; got 6"),
        (tf.zeros([4]), 1, r"residual must have the shape of gradient, \[5\]; got \[4\]"),
        (tf.zeros([5, 1]), 1, r"residual must have the shape of gradient, \[5\]; got \[5,1\]"),
        (tf.zeros([5]), [1, 2], r"k must be a scalar; got shape \[2\]"),
    ],
)
def test_bad_input_is_refused_with_the_values(residual, k, message: str, in_graph: bool) -> None:
    def select(gradient, residual, k):
        return top_k(gradient, residual, k).values

    shapeless = tf.function(
        select,
        input_signature=[tf.TensorSpec(None), tf.TensorSpec(None), tf.TensorSpec(None, tf.int64)],
    )
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        (shapeless if in_graph else select)(tf.ones([5]), residual, tf.constant(k, tf.int64))


def test_a_dtype_without_magnitude_is_refused() -> None:
    with pytest.raises((TypeError, tf.errors.InvalidArgumentError, tf.errors.NotFoundError)):
        top_k(tf.ones([5], tf.int32), tf.zeros([5]), 1)
