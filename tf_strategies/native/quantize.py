"""A dense vector in 8, 2 or 1 bits an element as one message of bytes, and the sum of the messages of all workers."""

from __future__ import annotations

import tensorflow as tf

from tf_strategies.native import loader


def quantize(gradient: tf.Tensor, seed: tf.Tensor, method: str, *, bucket: int = 512) -> tf.Tensor:
    """Returns a vector as one message: [m] uint8, whose length depends on n, method and bucket alone.

    Args:
        gradient: [n] float32.
        seed: [2] int64. The message is a function of gradient and seed: to be another for every step and worker.
        method: "stochastic8", 127 levels of either sign, randomly rounded; "ternary", -1, 0 or 1 times the largest magnitude,
            at random; or "sign", 1 or -1 times the mean magnitude, without randomness. The mean of what is read is the
            gradient for the first two; the third needs error feedback.
        bucket: elements that share a scale. One that is not finite makes all of its bucket NaN for every reader.

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

    Each element is added up in the order of the messages: who has the same bytes gets the same bits.

    Args:
        messages: [m] uint8, any number of what `quantize` wrote, one after another.
        count: elements of each.

    Raises:
        tf.errors.InvalidArgumentError: the bytes are damaged, or of a vector of another length.
    """
    return loader.library().tf_strategies_sum_quantized(messages=messages, count=tf.cast(count, tf.int64))
