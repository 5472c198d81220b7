"""Makes the batches of a `fit` whose global batch follows the number of workers.

The data are made for the number of workers with which the group began. Each worker keeps its number of rows, so batches of
another group have other sizes. A place in the data is written as parts: how many rows the batches had, and how many of them were
taken. The rows after it are the same for any number of workers.
"""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Optional, Sequence

import tensorflow as tf

from tf_strategies.keras.fit_types import Dataset
from tf_strategies.types import Structure

__all__ = ["ArrayRows", "FitBatches", "Parts", "add_part"]

Parts = List[List[int]]
"""The rows of a batch and the number of such batches, one after the other, as JSON."""


class ArrayRows(NamedTuple):
    """Describes the rows of arrays that Keras cuts into batches.

    Attributes:
        batch_size: the rows of a batch; the last one of an epoch may have fewer.
        total: the rows of an epoch.
        per_epoch: the number of batches of an epoch, if one iterator goes through all epochs; otherwise None.
    """

    batch_size: int
    total: int
    per_epoch: Optional[int]


class FitBatches:
    """Cuts a dataset into batches that have the same number of rows for each worker.

    Args:
        dataset: the dataset, with batches for the first workers.
        given: the number of rows of its batches.
        rows: the number of rows of the batches to make.
        total: the number of rows of an epoch, or None if it is unknown.
        steps_per_epoch: the number of batches of `given` rows that make an epoch, or None if an epoch ends with the data.
        per_epoch: the number of batches of an epoch, if one iterator goes through all epochs, and no batch through two.
        distribute: splits a dataset between the workers.

    Attributes:
        given, rows, per_epoch: the arguments.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        *,
        given: int,
        rows: int,
        total: Optional[int],
        steps_per_epoch: Optional[int],
        per_epoch: Optional[int],
        distribute: Callable[[tf.data.Dataset], Dataset],
    ) -> None:
        self.given, self.rows, self.per_epoch = given, rows, per_epoch
        self._dataset, self._total, self._distribute = dataset, total, distribute
        self._rows_of_epoch = total if steps_per_epoch is None else steps_per_epoch * given

    @property
    def are_as_given(self) -> bool:
        """Whether the batches have the size that the dataset has anyway."""
        return self.rows == self.given

    def steps(self, parts: Parts) -> Optional[int]:
        """Returns the number of batches of an epoch, or None if it is unknown.

        Args:
            parts: the part of the epoch that was taken already, which is counted, too.
        """
        if self._rows_of_epoch is None:
            return None
        left = max(0, self._rows_of_epoch - _rows_of(parts))
        return sum(batches for _, batches in parts) - (-left // self.rows)

    def distributed(self, earlier: Parts, parts: Parts) -> Dataset:
        """Returns the data from a place, split between the workers. A collective.

        Args:
            earlier: the parts of earlier epochs that were taken from the same iterator.
            parts: those of this epoch.
        """
        return self._distribute(self.after(earlier, parts))

    def after(self, earlier: Parts, parts: Parts) -> tf.data.Dataset:
        """Returns the batches from a place; arguments as for `distributed`."""
        if self.per_epoch is None:
            return self._cut_after(self._dataset, [*earlier, *parts])
        ended = sum(batches for _, batches in earlier)
        dataset = self._dataset.skip(ended) if ended else self._dataset
        if self.are_as_given and not parts:
            return dataset
        first = self._cut_after(dataset.take(self.per_epoch), parts)
        rest = dataset.skip(self.per_epoch)
        if not self.are_as_given:
            rest = rest.window(self.per_epoch).flat_map(self._cut_epoch)
        return first.concatenate(rest)

    def _cut_after(self, dataset: tf.data.Dataset, parts: Parts) -> tf.data.Dataset:
        size, taken = self.given, 0
        for rows, batches in parts:
            if rows != size:
                dataset, size = self._cut(dataset, rows, taken), rows
            dataset = dataset.skip(batches)
            taken += rows * batches
        return dataset if self.rows == size else self._cut(dataset, self.rows, taken)

    def _cut(self, dataset: tf.data.Dataset, rows: int, taken: int) -> tf.data.Dataset:
        dataset = dataset.unbatch()
        if self._total is not None:
            dataset = dataset.apply(tf.data.experimental.assert_cardinality(max(0, self._total - taken)))
        return dataset.batch(rows)

    def _cut_epoch(self, *batches: Structure) -> tf.data.Dataset:
        return tf.data.Dataset.zip(batches).unbatch().batch(self.rows)


def add_part(parts: Parts, rows: int, batches: int) -> None:
    """Adds batches to the end of a list of parts."""
    if parts and parts[-1][0] == rows:
        parts[-1][1] += batches
    elif batches:
        parts.append([rows, batches])


def _rows_of(parts: Sequence[Sequence[int]]) -> int:
    return sum(rows * batches for rows, batches in parts)
