"""Finds out by computing whether a loss is a mean over rows.

Then each row adds a term of its own to it, so that two batches [A; B] and [C; D] of the same size can exchange rows:
loss([A; B]) + loss([C; D]) = loss([A; D]) + loss([C; B]). A loss that compares rows with each other, such as a contrastive one,
has no such terms, nor has one that picks the hardest rows or divides by a number of valid ones. A sum over rows has them, but
changes if each row is given twice. The loss is computed for rows at random.
"""

from __future__ import annotations

import enum
from typing import Callable, Optional, Sequence, Set

import numpy as np
import tensorflow as tf

from tf_strategies.row_checks.loss_copy import LossCopy, UnknownError
from tf_strategies.row_checks.shared_tensors import SharedTensors

__all__ = ["Kind", "kind_of"]

_ROWS, _SIZE = 6, 4  # of a batch, and of another dimension, where the graph leaves it open
_TRIALS = 6  # one in three finds no greatest row that moves from one batch to the other
_MANY_ROWS, _FEWER_TRIALS = 16, 3  # they take longer
_TOLERANCE, _TOLERANCE_OF_HALF = 1e-4, 2e-2

_MOST_ELEMENTS = 50_000_000  # of a batch
_FAILURES = (
    UnknownError, tf.errors.OpError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""A loss that cannot be computed must not end the training."""

_Batch = Sequence[np.ndarray]
_LossOf = Callable[[_Batch], float]


class Kind(enum.Enum):
    """Names what a loss makes of the rows of a batch."""

    MEAN = "a mean, or a sum in a graph for one number of rows"
    SUM = "a sum"
    COMPARED = "what a row adds depends on other rows"


def kind_of(loss: tf.Tensor, shared: SharedTensors) -> Optional[Kind]:
    """Returns what a loss makes of the rows of a batch; None if it cannot be told.

    Args:
        loss: the loss, a tensor of a graph that is being built. It is added up if it has several elements.
        shared: the tensors that have the rows of all replicas.
    """
    if loss.dtype in (tf.float16, tf.bfloat16):
        return None
    try:
        copy = LossCopy(loss, shared)
        sizes = {each.shape[0] for each in copy.rows if each.shape.rank}
        with tf.init_scope(), tf.device(None):
            return _kind_of(copy, sizes - {None}, can_double=None in sizes)
    except _FAILURES:
        return None


def _kind_of(copy: LossCopy, sizes: Set[int], *, can_double: bool) -> Optional[Kind]:
    if len(sizes) > 1 or 1 in sizes:
        raise UnknownError("numbers of rows")
    if sum(np.prod([each or 1 for each in rows.shape]) for rows in copy.rows) > _MOST_ELEMENTS:
        raise UnknownError("a large batch")
    count = next(iter(sizes), _ROWS)
    tolerance = _TOLERANCE_OF_HALF if copy.has_half_precision else _TOLERANCE
    random = np.random.default_rng(0)
    function = tf.function(copy.compute, autograph=False)

    def loss_of(batch: _Batch) -> float:
        loss = float(function(*map(tf.constant, batch)))
        if not np.isfinite(loss):
            raise UnknownError("not finite")
        return loss

    def batch() -> _Batch:
        return [_values_like(each, count, random) for each in copy.rows]

    for _ in range(_TRIALS if count < _MANY_ROWS else _FEWER_TRIALS):
        first, second = batch(), batch()
        if not _has_terms(loss_of, first, second, tolerance):
            return Kind.COMPARED
    if can_double and not sizes and not copy.draws:
        once, twice = loss_of(first), loss_of([_joined(each, each) for each in first])
        if abs(once - twice) > tolerance * max(abs(once), abs(twice)):
            return Kind.SUM
    return Kind.MEAN


def _has_terms(loss_of: _LossOf, first: _Batch, second: _Batch, tolerance: float) -> bool:
    """Returns True if the sum of the losses of two batches is the same after they have exchanged rows.

    Raises:
        UnknownError: if the loss of a batch differs from one time to the next.
    """
    half = max(len(each) for each in first if each.ndim) // 2
    left = [_joined(some[:half], others[half:]) if some.ndim else some for some, others in zip(first, second)]
    right = [
        _joined(others[:half], some[half:]) if some.ndim else others for some, others in zip(first, second)
    ]
    before, after = [loss_of(first), loss_of(second)], [loss_of(left), loss_of(right)]
    scale = max(map(abs, before + after))
    if abs(loss_of(first) - before[0]) > 1e-6 * scale:
        raise UnknownError("random")
    return abs(sum(before) - sum(after)) <= tolerance * scale


def _joined(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    return np.concatenate([some, others]) if some.ndim else some


def _values_like(rows: tf.Tensor, count: int, random: np.random.Generator) -> np.ndarray:
    """Returns values at random. Integers are 0 or 1, which are valid as labels and as rows of tables."""
    if rows.shape.rank is None:
        raise UnknownError("rank")
    shape = [_SIZE if each is None else each for each in rows.shape]
    if shape:
        shape[0] = count
    if rows.dtype == tf.bool or rows.dtype.is_integer:
        return np.asarray(random.integers(0, 2, shape)).astype(rows.dtype.as_numpy_dtype)
    if not rows.dtype.is_floating:
        raise UnknownError(rows.dtype.name)
    return np.asarray(random.standard_normal(shape, np.float32)).astype(rows.dtype.as_numpy_dtype)
