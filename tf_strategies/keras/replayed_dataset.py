"""Counts the iterators of a dataset, and starts one at the position of an earlier run."""

from __future__ import annotations

from typing import Any, Optional, Tuple

import tensorflow as tf

from tf_strategies.keras.fit_types import Dataset
from tf_strategies.types import BatchIterator

__all__ = ["ReplayedDataset"]


class ReplayedDataset:
    """A dataset that counts its iterators. An iterator can start at the position of an earlier run.

    Attributes:
        created: the number of iterators made so far.
        taken: the number of batches that training took from the last iterator, as reported by `fit`.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self.created = 0
        self.taken = 0
        self._goal: Optional[Tuple[int, int, int, Dataset]] = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def begin_at(self, number: int, taken: int, *, after: int = 0, rest: Optional[Dataset] = None) -> None:
        """Makes a later iterator the one with this number (from 1), after `taken` of its batches.

        Args:
            number: the number among all iterators that the loop makes.
            taken: the number of batches to read and drop.
            after: the number of iterators that the loop makes before, without using them.
            rest: the data of this iterator; None for those of all others.
        """
        self._goal = (number, taken, after, self._dataset if rest is None else rest)

    def __iter__(self) -> BatchIterator:
        if self._goal is None:
            return self._make()
        number, taken, after, rest = self._goal
        while self.created + 1 < number - after:
            self._count()
        if after:
            self._goal = (number, taken, after - 1, rest)
            return self._make()
        iterator = self._make(rest)
        self._goal = None
        if taken:
            # A function of its own: a new trace has the collectives of the group that reads now.
            tf.function(_drop)(iterator, tf.constant(taken, tf.int64))
            self.taken = taken
        return iterator

    def _count(self) -> None:
        """Does the same as `_make`, for an iterator that nobody reads."""
        if not hasattr(self._dataset, "count_iterator"):
            self._make()
            return
        self.created += 1
        self.taken = 0
        self._dataset.count_iterator()

    def _make(self, dataset: Optional[Dataset] = None) -> BatchIterator:
        self.created += 1
        self.taken = 0
        return iter(self._dataset if dataset is None else dataset)


def _drop(iterator: BatchIterator, count: tf.Tensor) -> None:
    for _ in tf.range(count):
        iterator.get_next()
