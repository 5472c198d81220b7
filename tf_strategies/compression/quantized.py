"""Compressors that send every entry of a gradient in few bits."""

from __future__ import annotations

from typing import List, Optional, Sequence

import tensorflow as tf

from tf_strategies.compression.base import Compressor, Gradient, Predicate, Workers, flag, only_finite, whole
from tf_strategies.native.quantize import quantize, sum_quantized

__all__ = ["Quantize4", "Quantize8", "SignSGD", "Ternary"]

_MOST_BUCKET = (1 << 31) - 1
_MOST_SEED = 1 << 62


class _Quantized(Compressor):
    """The base class: each worker sends all its gradients as one vector, in one message to all other workers."""

    method = ""

    def __init__(
        self,
        *,
        bucket: int = 512,
        seed: int = 0,
        error_feedback: bool = False,
        min_elements: int = 1024,
        predicate: Optional[Predicate] = None,
    ) -> None:
        super().__init__(min_elements=min_elements, predicate=predicate)
        self.error_feedback = flag("error_feedback", error_feedback)
        self.bucket = whole("bucket", bucket, least=1, most=_MOST_BUCKET)
        self.seed = whole("seed", seed, least=0, most=_MOST_SEED)

    @property
    def slots(self):
        return ("residual",) if self.error_feedback else ()

    def add_up(self, gradients: Sequence[Gradient], step: tf.Tensor, workers: Workers) -> List[tf.Tensor]:
        wanted = [gradient.value for gradient in gradients]
        residuals = [gradient.slots["residual"] for gradient in gradients if self.error_feedback]
        if residuals:
            wanted = [value + residual.read_value() for value, residual in zip(wanted, residuals)]
        lengths = [each.shape[0] for each in wanted]
        vector = tf.concat(wanted, 0)
        seed = tf.stack([tf.constant(self.seed + workers.rank, tf.int64), step])
        message = quantize(vector, seed, self.method, bucket=self.bucket)
        if residuals:
            left = tf.split(vector - sum_quantized(message, tf.size(vector)), lengths)
            for residual, part in zip(residuals, left):
                residual.assign(only_finite(part), read_value=False)
        return workers.gather(
            message,
            f"quantized {len(gradients)} gradients",
            lambda everyone: tf.split(sum_quantized(everyone, sum(lengths)), lengths),
        )


class Quantize8(_Quantized):
    """Sends each entry in 8 bits: a level from -127 to 127 of the largest magnitude of its bucket, with stochastic rounding.

    The rounding is unbiased, so error feedback is not needed.

    Args:
        bucket: how many entries share a scale.
        seed: the seed of the rounding.
        error_feedback: whether rounding errors are kept and added to the next gradient.
        min_elements: variables with fewer elements, and those with less than two dimensions, are not compressed.
        predicate: `(name, shape) -> bool`; chooses the variables that are compressed instead.

    Raises:
        OptionsError: an argument has a value that is not allowed.

    References:
        Alistarh et al. 2017, "QSGD: communication-efficient SGD via gradient quantization and encoding", section 3.2; the
        scale is the maximum norm.

    Example:
        >>> strategy = tfs.CollectiveAllReduceStrategy(compression=tfs.compression.Quantize8())
    """

    method = "stochastic8"


class Quantize4(_Quantized):
    """Sends each entry in 4 bits: a level from -7 to 7 of the largest magnitude of its bucket, with stochastic rounding.

    The rounding is unbiased. With the same bucket its steps are 18 times those of `Quantize8`. Smaller buckets are less noisy.

    Args:
        bucket: how many entries share a scale of 32 bits. With 64, the default, the scales cost 32/64 = 0.5 bit for each
            entry, and an entry takes 4.5 bits.
        seed: the seed of the rounding.
        error_feedback: whether rounding errors are kept and added to the next gradient.
        min_elements: variables with fewer elements, and those with less than two dimensions, are not compressed.
        predicate: `(name, shape) -> bool`; chooses the variables that are compressed instead.

    Raises:
        OptionsError: an argument has a value that is not allowed.

    References:
        Alistarh et al. 2017, "QSGD: communication-efficient SGD via gradient quantization and encoding", section 3.2; the
        scale is the maximum norm.

    Example:
        >>> strategy = tfs.CollectiveAllReduceStrategy(compression=tfs.compression.Quantize4())
    """

    method = "stochastic4"

    def __init__(
        self,
        *,
        bucket: int = 64,
        seed: int = 0,
        error_feedback: bool = False,
        min_elements: int = 1024,
        predicate: Optional[Predicate] = None,
    ) -> None:
        super().__init__(
            bucket=bucket,
            seed=seed,
            error_feedback=error_feedback,
            min_elements=min_elements,
            predicate=predicate,
        )


class Ternary(_Quantized):
    """Sends each entry in 2 bits: -1, 0 or 1 times the largest magnitude of its bucket, with stochastic rounding.

    The rounding is unbiased but noisy. Smaller buckets are less noisy.

    Args:
        bucket: how many entries share a scale.
        seed: the seed of the rounding.
        error_feedback: whether rounding errors are kept and added to the next gradient. They can grow without bound if the
            largest entry of a bucket is far above the others.
        min_elements: variables with fewer elements, and those with less than two dimensions, are not compressed.
        predicate: `(name, shape) -> bool`; chooses the variables that are compressed instead.

    Raises:
        OptionsError: an argument has a value that is not allowed.

    References:
        Wen et al. 2017, "TernGrad: ternary gradients to reduce communication in distributed deep learning".

    Example:
        >>> strategy = tfs.CollectiveAllReduceStrategy(compression=tfs.compression.Ternary(bucket=256))
    """

    method = "ternary"


class SignSGD(_Quantized):
    """Sends each entry in 1 bit: its sign, times the mean magnitude of its bucket. The error is added to the next gradient.

    Args:
        bucket: how many entries share a scale.
        error_feedback: whether the error is kept. Without it, signs are biased, and training may not converge.
        min_elements: variables with fewer elements, and those with less than two dimensions, are not compressed.
        predicate: `(name, shape) -> bool`; chooses the variables that are compressed instead.

    Raises:
        OptionsError: an argument has a value that is not allowed.

    References:
        Seide et al. 2014, "1-bit stochastic gradient descent"; Karimireddy et al. 2019, "Error feedback fixes SignSGD and
        other gradient compression schemes", algorithm 2.

    Example:
        >>> strategy = tfs.CollectiveAllReduceStrategy(compression=tfs.compression.SignSGD())
    """

    method = "sign"

    def __init__(
        self,
        *,
        bucket: int = 512,
        error_feedback: bool = True,
        min_elements: int = 1024,
        predicate: Optional[Predicate] = None,
    ) -> None:
        super().__init__(
            error_feedback=error_feedback,
            bucket=bucket,
            min_elements=min_elements,
            predicate=predicate,
        )
