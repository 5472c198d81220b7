"""Encodes a dense vector with 8, 4, 2 or 1 bits for each element, and adds up the messages of all workers."""

from __future__ import annotations

import tensorflow as tf

from tf_strategies.native import loader


def quantize(gradient: tf.Tensor, seed: tf.Tensor, method: str, *, bucket: int = 512) -> tf.Tensor:
    """Encodes a vector as one message, [m] uint8, whose length depends only on n, method and bucket.

    Args:
        gradient: [n] float32.
        seed: [2] int64. It must differ for every step and worker. The same gradient and seed give the same
            message.
        method: "stochastic8": 127 levels of either sign, with random rounding. "stochastic4": the same with 7
            levels. "ternary": -1, 0 or 1 times the largest magnitude, with random rounding. "sign": 1 or -1
            times the mean magnitude, without randomness. The first three are unbiased; "sign" needs error
            feedback.
        bucket: the number of elements that share a scale. An element that is not finite makes its whole
            bucket NaN.

    Raises:
        tf.errors.InvalidArgumentError: a shape or the bucket is wrong.

    References:
        Alistarh et al. 2017, "QSGD", section 3.2; here with the maximum norm. Wen et al. 2017, "TernGrad". Karimireddy et al.
        2019, "Error feedback fixes SignSGD and other gradient compression schemes".
    """
    return loader.library().tf_strategies_quantize(
        gradient=gradient, seed=tf.cast(seed, tf.int64), method=method, bucket=bucket
    )


def sum_quantized(messages: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
    """Returns the sum of messages as a vector, [count] float32.

    Each element is added up in the order of the messages, so equal bytes give equal bits.

    Args:
        messages: [m] uint8, any number of concatenated messages of `quantize`.
        count: the number of elements of each vector.

    Raises:
        tf.errors.InvalidArgumentError: the bytes are damaged, or belong to a vector of another length.
    """
    return loader.library().tf_strategies_sum_quantized(messages=messages, count=tf.cast(count, tf.int64))
