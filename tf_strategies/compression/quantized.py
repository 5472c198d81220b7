"""All entries of each gradient, in few bits."""

from __future__ import annotations

from typing import List, Optional, Sequence

import tensorflow as tf

from tf_strategies.compression.base import Compressor, Gradient, Predicate, Workers, flag, only_finite, whole
from tf_strategies.native.quantize import quantize, sum_quantized

__all__ = ["Quantize8", "SignSGD", "Ternary"]

_MOST_BUCKET = (1 << 31) - 1
_MOST_SEED = 1 << 62


class _Quantized(Compressor):
    """Base: all gradients as one vector in one message of each worker, which all others receive."""

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
    """Each entry in 8 bits: one of 127 levels of either sign up to the largest magnitude of its bucket, rounded at random.

    Rounding is unbiased, so that nothing need be remembered.

    Args:
        bucket: how many entries share a scale.
        seed: of the rounding.
        error_feedback: whether what rounding changed is kept and added to the next gradient.
        min_elements: variables with fewer elements, and those of less than two dimensions, are exchanged as they are.
        predicate: `(name, shape) -> bool` chooses the variables instead.

    Raises:
        OptionsError: an argument has a value it cannot have.

    References:
        Alistarh et al. 2017, "QSGD: communication-efficient SGD via gradient quantization and encoding", section 3.2; the scale
        is the maximum norm.
    """

    method = "stochastic8"


class Ternary(_Quantized):
    """Each entry in 2 bits: -1, 0 or 1 times the largest magnitude of its bucket, at random.

    Unbiased, and noisy: the fewer entries share a scale, the less.

    Args:
        bucket: how many entries share a scale.
        seed: of the draws.
        error_feedback: whether what rounding changed is kept and added to the next gradient; it can grow without bound where
            the largest entry of a bucket is far above the others.
        min_elements: variables with fewer elements, and those of less than two dimensions, are exchanged as they are.
        predicate: `(name, shape) -> bool` chooses the variables instead.

    Raises:
        OptionsError: an argument has a value it cannot have.

    References:
        Wen et al. 2017, "TernGrad: ternary gradients to reduce communication in distributed deep learning".
    """

    method = "ternary"


class SignSGD(_Quantized):
    """Each entry in 1 bit: its sign, times the mean magnitude of its bucket; what that leaves is added to the next gradient.

    Args:
        bucket: how many entries share a scale.
        error_feedback: whether what is left is kept. Without, signs alone are biased, and training may not converge.
        min_elements: variables with fewer elements, and those of less than two dimensions, are exchanged as they are.
        predicate: `(name, shape) -> bool` chooses the variables instead.

    Raises:
        OptionsError: an argument has a value it cannot have.

    References:
        Seide et al. 2014, "1-bit stochastic gradient descent"; Karimireddy et al. 2019, "Error feedback fixes SignSGD and other
        gradient compression schemes", algorithm 2.
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
