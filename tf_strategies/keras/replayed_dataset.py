"""Counts the iterators of a dataset, and begins one where that of a former run was."""

from __future__ import annotations

from typing import Any, Optional

import tensorflow as tf

__all__ = ["ReplayedDataset"]


class ReplayedDataset:
    """A dataset whose iterators are counted, and can be made to begin where those of a former run were.

    Attributes:
        created: iterators made so far.
        taken: batches that training took from the last of them, as far as `fit` has told.
    """

    def __init__(self, dataset: tf.data.Dataset) -> None:
        self._dataset = dataset
        self.created = 0
        self.taken = 0
        self._goal: Optional[tuple] = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def begin_at(self, number: int, taken: int, *, after: int = 0) -> None:
        """Lets a coming iterator be the one with this number (from 1), with `taken` batches gone.

        Args:
            number: among all iterators that the loop has made since it began.
            taken: batches to read and drop.
            after: how many iterators the loop makes before, and does not use.
        """
        self._goal = (number, taken, after)

    def __iter__(self) -> Any:
        if self._goal is None:
            return self._make()
        number, taken, after = self._goal
        while self.created + 1 < number - after:
            self._make()
        iterator = self._make()
        if after:
            self._goal = (number, taken, after - 1)
            return iterator
        self._goal = None
        if taken:
            _drop(iterator, tf.constant(taken, tf.int64))
            self.taken = taken
        return iterator

    def _make(self) -> Any:
        self.created += 1
        self.taken = 0
        return iter(self._dataset)


@tf.function(reduce_retracing=True)
def _drop(iterator: Any, count: tf.Tensor) -> None:
    for _ in tf.range(count):
        iterator.get_next()
