"""Gradients in 16 bits on the way."""

from __future__ import annotations

from typing import List, Optional, Sequence

import tensorflow as tf

from tf_strategies.compression.base import Compressor, Gradient, Predicate, Workers, choice

__all__ = ["Half"]

_DTYPES = ("float16", "bfloat16")


class Half(Compressor):
    """Half the bytes: each worker rounds its gradients to 16 bits, and sums are rounded again wherever they are sent on.

    Each sum of two is formed in float32. Nothing is remembered.

    Args:
        dtype: "float16" (11 significant bits; beyond 65,504 infinite, below 6e-8 nothing) or "bfloat16" (8 bits; the range of
            float32).
        min_elements: as in every compressor; by default all gradients are taken.
        predicate: as in every compressor.

    Raises:
        OptionsError: an argument has a value it cannot have.
    """

    shows_what_is_not_finite = True

    def __init__(
        self, dtype: str = "float16", *, min_elements: int = 0, predicate: Optional[Predicate] = None
    ) -> None:
        super().__init__(min_elements=min_elements, predicate=predicate)
        self.dtype = choice("dtype", dtype, _DTYPES)

    def takes(self, name, shape):
        return super().takes(name, shape) or (self.predicate is None and not self.min_elements)

    def add_up(self, gradients: Sequence[Gradient], step: tf.Tensor, workers: Workers) -> List[tf.Tensor]:
        del step
        return workers.add_up(
            [tf.cast(gradient.value, self.dtype) for gradient in gradients],
            lambda sums: [tf.cast(total, tf.float32) for total in sums],
        )
