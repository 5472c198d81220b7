"""Random-k compression: sends random entries of each gradient, the same on all workers."""

from __future__ import annotations

from typing import List, Optional, Sequence

import tensorflow as tf

from tf_strategies.compression.base import Compressor, Gradient, Predicate, Workers, flag, only_finite, whole
from tf_strategies.compression.ratio import Ratio, checked_ratio, entries

__all__ = ["RandomK"]

_MOST = (1 << 31) - 1  # seeds are int32
_KEYS_APART = 1_000_003  # makes the seeds of two gradients of one exchange differ


class RandomK(Compressor):
    """Sends k = ratio · n random entries of each gradient of n elements. All workers draw the same entries, anew each step.

    No indices are sent, and an all-reduce adds up the entries. The bytes that a worker receives do not grow with the number
    of workers.

    Args:
        ratio: the part of the entries that is sent, above 0 and at most 1; or a function of the step, [] int64.
        error_feedback: whether entries that are not sent are kept and added to the next gradient. Without it, entries are
            multiplied by n / k, which makes the sum unbiased but noisy.
        seed: the seed of the draws.
        min_elements: variables with fewer elements, and those with less than two dimensions, are not compressed.
        predicate: `(name, shape) -> bool`; chooses the variables that are compressed instead.

    Raises:
        OptionsError: an argument has a value that is not allowed.

    References:
        Stich et al. 2018, "Sparsified SGD with memory", definition 2.1 (random-k).

    Example:
        >>> strategy = tfs.CollectiveAllReduceStrategy(compression=tfs.compression.RandomK(0.05))
    """

    def __init__(
        self,
        ratio: Ratio = 0.01,
        *,
        error_feedback: bool = True,
        seed: int = 0,
        min_elements: int = 1024,
        predicate: Optional[Predicate] = None,
    ) -> None:
        super().__init__(min_elements=min_elements, predicate=predicate)
        self.ratio = checked_ratio(ratio)
        self.error_feedback = flag("error_feedback", error_feedback)
        self.seed = whole("seed", seed, least=0)

    @property
    def slots(self):
        return ("residual",) if self.error_feedback else ()

    def add_up(self, gradients: Sequence[Gradient], step: tf.Tensor, workers: Workers) -> List[tf.Tensor]:
        counts = [
            tf.cast(entries(self.ratio, gradient.value.shape[0], step), tf.int64) for gradient in gradients
        ]
        mine = []
        for gradient, count in zip(gradients, counts):
            places = self._draw(gradient, count, step)
            residual = gradient.slots.get("residual")
            if residual is None:
                mine.append(tf.gather(gradient.value, places))
                continue
            total = gradient.value + residual.read_value()
            mine.append(tf.gather(total, places))
            kept = tf.tensor_scatter_nd_update(total, places[:, tf.newaxis], tf.zeros_like(mine[-1]))
            residual.assign(only_finite(kept), read_value=False)
        # The indices are drawn again instead of sent: they have more bytes than the values, and the sums may
        # be needed on another device.
        return workers.add_up(
            mine,
            lambda sums: [
                self._spread(self._draw(gradient, count, step), total, gradient.value.shape[0])
                for gradient, count, total in zip(gradients, counts, sums)
            ],
        )

    def _draw(self, gradient: Gradient, count: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        """Returns [count] distinct int64 indices: the first elements of a random permutation."""
        elements = gradient.value.shape[0]
        key = (self.seed + gradient.number * _KEYS_APART) % _MOST
        with tf.device("/device:CPU:0"):  # TensorFlow has no kernel for GPUs
            return tf.random.experimental.index_shuffle(
                tf.range(count),
                tf.stack([tf.constant(key), tf.cast(step % _MOST, tf.int32)]),
                tf.constant(max(elements - 1, 0), tf.int64),
            )

    def _spread(self, places: tf.Tensor, values: tf.Tensor, elements: int) -> tf.Tensor:
        if not self.error_feedback:
            values *= elements / tf.cast(tf.maximum(tf.size(values), 1), values.dtype)
        return tf.scatter_nd(places[:, tf.newaxis], values, [elements])
