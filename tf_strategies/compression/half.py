"""Compression to 16 bits: float16 or bfloat16."""

from __future__ import annotations

from typing import List, Optional, Sequence

import tensorflow as tf

from tf_strategies.compression.base import Compressor, Gradient, Predicate, Workers, choice

__all__ = ["Half"]

_DTYPES = ("float16", "bfloat16")


class Half(Compressor):
    """Sends gradients in 16 bits. Sums are rounded again whenever they are sent on.

    Each sum of two values is computed in float32. There is no error feedback.

    Args:
        dtype: "float16" (11 significant bits; infinite above 65,504, zero below 6e-8) or "bfloat16" (8 significant bits; the
            range of float32).
        min_elements: variables with fewer elements are not compressed. By default all gradients are.
        predicate: `(name, shape) -> bool`; chooses the variables that are compressed instead.

    Raises:
        OptionsError: an argument has a value that is not allowed.

    Example:
        >>> strategy = tfs.CollectiveAllReduceStrategy(compression=tfs.compression.Half("bfloat16"))
    """

    shows_what_is_not_finite = True

    def __init__(
        self, dtype: str = "float16", *, min_elements: int = 0, predicate: Optional[Predicate] = None
    ) -> None:
        super().__init__(min_elements=min_elements, predicate=predicate)
        self.dtype = choice("dtype", dtype, _DTYPES)

    @property
    def rounds_to(self):
        return self.dtype

    def takes(self, name, shape):
        return super().takes(name, shape) or (self.predicate is None and not self.min_elements)

    def add_up(self, gradients: Sequence[Gradient], step: tf.Tensor, workers: Workers) -> List[tf.Tensor]:
        del step
        return workers.add_up(
            [tf.cast(gradient.value, self.dtype) for gradient in gradients],
            lambda sums: [tf.cast(total, tf.float32) for total in sums],
        )
