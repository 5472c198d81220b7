"""Adds up the changes of weights over workers, in few bits if wanted.

The sum in few bits has two halves, as a ring has: each worker adds up one part of the vector, whose summands come in few bits,
and sends the sum in few bits to all. So a worker receives about twice the vector in few bits, however many workers there are. All
workers decode the same bytes, and get the same bits.
"""

from __future__ import annotations

from typing import Callable, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.collective.exchange.sparse_rows import HOST
from tf_strategies.collective.worker_group import Collectives

__all__ = ["WeightSums"]

_CODES = {
    None: ("", 1),
    8: ("stochastic8", 512),
    4: ("stochastic4", 64),
}  # and the elements that share a scale of 32 bits
_LEAST_ELEMENTS = 1024  # smaller tensors are sent as they are: there is little to gain


class WeightSums:
    """Adds up over all workers.

    Args:
        group: the workers.
        sum_between_workers: returns the exact sums of tensors. A collective.
        bits: the bits of an element on the wire, 4 or 8; None for exact sums.
    """

    def __init__(
        self,
        group: Collectives,
        sum_between_workers: Callable[[Sequence[tf.Tensor]], List[tf.Tensor]],
        bits: Optional[int],
    ) -> None:
        self._group, self._sum_between_workers = group, sum_between_workers
        self._method, self._bucket = _CODES[bits]
        with tf.init_scope(), tf.device(HOST):
            self._calls = compat.ResourceVariable(0, dtype=tf.int64, trainable=False, name="sums_in_few_bits")

    def __call__(
        self, changes: Sequence[tf.Tensor], others: Sequence[tf.Tensor]
    ) -> Tuple[List[tf.Tensor], List[tf.Tensor]]:
        """Returns the sums of changes, which may be rounded, and the exact sums of others. A collective."""
        rounded = [i for i, each in enumerate(changes) if self._is_rounded(each)]
        exact = [i for i in range(len(changes)) if i not in rounded]
        totals = self._sum_between_workers([*others, *(changes[i] for i in exact)])
        sums = dict(zip(exact, totals[len(others) :]))
        if rounded:
            parts = [tf.reshape(changes[i], [-1]) for i in rounded]
            with tf.device(HOST):
                total = self._sum_in_few_bits(tf.concat(parts, 0))
                pieces = tf.split(total, [part.shape[0] for part in parts])
            sums.update({i: tf.reshape(piece, changes[i].shape) for i, piece in zip(rounded, pieces)})
        return [sums[i] for i in range(len(changes))], totals[: len(others)]

    def _is_rounded(self, change: tf.Tensor) -> bool:
        return (
            bool(self._method)
            and self._group.size > 1
            and change.dtype == tf.float32
            and int(change.shape.num_elements()) >= _LEAST_ELEMENTS
        )

    def _sum_in_few_bits(self, vector: tf.Tensor) -> tf.Tensor:
        """Returns the sum over workers of a vector, [n] float32."""
        from tf_strategies.native.quantize import sum_quantized

        size, elements = self._group.size, int(vector.shape[0])
        share = -(-elements // (size * self._bucket)) * self._bucket
        padded = tf.pad(vector, [[0, share * size - elements]])
        call = self._calls.assign_add(1)
        messages = [self._written(part, place, call) for place, part in enumerate(tf.split(padded, size))]
        lengths = tf.stack([tf.size(each, tf.int64) for each in messages])
        name = "changes of weights"
        received, _ = self._group.all_to_all(tf.concat(messages, 0), lengths, name=name)
        message = self._written(sum_quantized(received, share), size, call)
        everyone = tf.split(self._group.all_gather(message, name=f"sums of {name}"), size)
        return tf.concat([sum_quantized(each, share) for each in everyone], 0)[:elements]

    def _written(self, part: tf.Tensor, place: int, call: tf.Tensor) -> tf.Tensor:
        """Returns the message of one part. No two messages of a call have the same random numbers."""
        from tf_strategies.native.quantize import quantize

        seed = tf.stack([tf.constant(self._group.rank * (self._group.size + 1) + place, tf.int64), call])
        return quantize(part, seed, self._method, bucket=self._bucket)
