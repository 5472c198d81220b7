"""Sends selected entries of all gradients in one message for each worker, and adds them up."""

from __future__ import annotations

import itertools
from typing import List, NamedTuple, Sequence, Union

import tensorflow as tf

from tf_strategies.compression.base import Workers
from tf_strategies.native.entries import encode_entries, sum_entries

__all__ = ["VALUE_FORMATS", "EntryLists", "SelectedEntries", "joined", "lost_in_writing", "split_up"]

VALUE_FORMATS = ("float32", "float16", "int8")


class SelectedEntries(NamedTuple):
    """Selected entries of a vector.

    Attributes:
        indices: [k] int64, ascending.
        values: [k] float32.
        elements: the length of the vector.
        wanted: the number of entries to select, the same on all workers: an int or [] int64.
    """

    indices: tf.Tensor
    values: tf.Tensor
    elements: int
    wanted: Union[int, tf.Tensor]


def starts_of(lists: Sequence[SelectedEntries]) -> List[int]:
    """Returns where each vector begins in their concatenation."""
    return [0, *itertools.accumulate(each.elements for each in lists[:-1])]


def joined(lists: Sequence[SelectedEntries]) -> SelectedEntries:
    """Returns the entries of several vectors, as entries of their concatenation."""
    starts = starts_of(lists)
    return SelectedEntries(
        tf.concat([each.indices + start for each, start in zip(lists, starts)], 0),
        tf.concat([each.values for each in lists], 0),
        sum(each.elements for each in lists),
        sum(each.wanted for each in lists),
    )


def split_up(values: tf.Tensor, lists: Sequence[SelectedEntries]) -> List[tf.Tensor]:
    """Splits the values of joined lists by vector."""
    return tf.split(values, tf.stack([tf.size(each.values) for each in lists]), num=len(lists))


def lost_in_writing(values: tf.Tensor, sent: tf.Tensor) -> tf.Tensor:
    """Returns the rounding errors of encoded values, and 0 for values that are not finite."""
    return tf.where(tf.math.is_finite(values), values - sent, 0.0)


class EntryLists:
    """The entries that one worker sends of all gradients of an exchange, as entries of their concatenation.

    Args:
        lists: the entries of each gradient.
        value_format: how values are encoded: one of `VALUE_FORMATS`.
    """

    def __init__(self, lists: Sequence[SelectedEntries], value_format: str) -> None:
        self._lists = lists
        self._exact = value_format == "float32"
        self._elements = [each.elements for each in lists]
        mine = joined(lists)
        self._message, sent = encode_entries(
            mine.indices, mine.values, mine.elements, value_format=value_format
        )
        self._lost = split_up(lost_in_writing(mine.values, sent), lists)

    def unsent(self, number: int, remaining: tf.Tensor) -> tf.Tensor:
        """Returns the part of a vector that is not sent, [elements] float32.

        It consists of the entries that were not selected, and of the rounding errors of the others.
        """
        if self._exact:
            return remaining
        places = self._lists[number].indices[:, tf.newaxis]
        return tf.tensor_scatter_nd_update(remaining, places, self._lost[number])

    def sum_over(self, workers: Workers) -> List[tf.Tensor]:
        """Returns the sums over workers of all vectors, each [elements] float32, added in the order of ranks.

        A collective.
        """
        return workers.gather(
            self._message,
            f"entries of {len(self._elements)} gradients",
            lambda everyone: tf.split(sum_entries(everyone, sum(self._elements)), self._elements),
        )
