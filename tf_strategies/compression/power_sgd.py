"""Compression to matrices of low rank."""

from __future__ import annotations

from typing import List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies.compression.base import Compressor, Gradient, Predicate, Workers, only_finite, whole

__all__ = ["PowerSGD"]

_MOST_SEED = 1 << 62


class PowerSGD(Compressor):
    """Sends the best approximation of low rank that one step of the power iteration finds. What it leaves out is added later.

    A gradient counts as a matrix with the last dimension of its variable as columns. Of rows × columns entries it sends
    rank × (rows + columns), in two all-reduces, whatever the number of workers. The iteration continues from the factor of the
    step before. Variables of which it would send as much as without compression are not compressed.

    Every worker computes the same factors, so all need the same kind of processor. It does not work with parameter servers.

    Args:
        rank: of the approximation, at least 1.
        seed: the seed of the first factors.
        min_elements: variables with fewer elements, and those with less than two dimensions, are not compressed.
        predicate: `(name, shape) -> bool`; chooses the variables that are compressed instead.

    Raises:
        OptionsError: an argument has a value that is not allowed.

    References:
        Vogels et al. 2019, "PowerSGD: practical low-rank gradient compression for distributed optimization", algorithms 1
        and 2, with warm start and error feedback.

    Example:
        >>> strategy = tfs.CollectiveAllReduceStrategy(compression=tfs.compression.PowerSGD(rank=2))
    """

    needs_all_workers = True

    def __init__(
        self,
        rank: int = 2,
        *,
        seed: int = 0,
        min_elements: int = 1024,
        predicate: Optional[Predicate] = None,
    ) -> None:
        super().__init__(min_elements=min_elements, predicate=predicate)
        self.rank = whole("rank", rank, least=1)
        self.seed = whole("seed", seed, least=0, most=_MOST_SEED)

    @property
    def slots(self):
        return ("residual",)

    def agreed_slots(self, shape):
        _, columns, rank = self._sizes(shape)
        return {"factor": columns * rank}

    def takes(self, name, shape):
        if not super().takes(name, shape):
            return False
        rows, columns, rank = self._sizes(shape)
        return self.predicate is not None or rank * (rows + columns) < rows * columns

    def _sizes(self, shape: Tuple[int, ...]) -> Tuple[int, int, int]:
        """Returns the rows and columns of the matrix, and its rank."""
        columns = shape[-1] if shape else 1
        rows = 1
        for extent in shape[:-1]:
            rows *= extent
        return rows, columns, min(self.rank, rows, columns)

    def add_up(self, gradients: Sequence[Gradient], step: tf.Tensor, workers: Workers) -> List[tf.Tensor]:
        del step
        wanted = [gradient.value + gradient.slots["residual"].read_value() for gradient in gradients]
        matrices = [
            tf.reshape(each, self._sizes(gradient.shape)[:2]) for each, gradient in zip(wanted, gradients)
        ]
        lefts = workers.add_up(
            [tf.matmul(matrix, self._factor(each)) for matrix, each in zip(matrices, gradients)],
            lambda sums: [tf.linalg.qr(total, full_matrices=False)[0] for total in sums],
        )
        rights = [tf.matmul(matrix, left, transpose_a=True) for matrix, left in zip(matrices, lefts)]
        for gradient, matrix, left, right in zip(gradients, matrices, lefts, rights):
            rest = matrix - tf.matmul(left, right, transpose_b=True)
            gradient.slots["residual"].assign(only_finite(tf.reshape(rest, [-1])), read_value=False)

        def approximations(sums: List[tf.Tensor]) -> List[tf.Tensor]:
            for gradient, total in zip(gradients, sums):
                gradient.slots["factor"].assign(only_finite(tf.reshape(total, [-1])), read_value=False)
            return [
                tf.reshape(tf.matmul(left, total, transpose_b=True), [-1]) for left, total in zip(lefts, sums)
            ]

        return workers.add_up(rights, approximations)

    def _factor(self, gradient: Gradient) -> tf.Tensor:
        """Returns the factor [columns, rank] of the step before, or a random one in its place."""
        _, columns, rank = self._sizes(gradient.shape)
        kept = tf.reshape(gradient.slots["factor"].read_value(), [columns, rank])
        return tf.cond(
            tf.reduce_any(tf.not_equal(kept, 0.0)),
            lambda: kept,
            lambda: tf.random.stateless_normal([columns, rank], [self.seed, gradient.number]),
        )
