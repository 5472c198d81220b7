"""Some entries of every gradient, as one message of each worker, and their sum."""

from __future__ import annotations

from typing import Any, List, NamedTuple, Sequence

import tensorflow as tf

from tf_strategies.compression.base import Workers
from tf_strategies.native.entries import encode_entries, sum_entries

__all__ = ["VALUE_FORMATS", "EntryLists", "SelectedEntries", "joined", "lost_in_writing", "split_up"]

VALUE_FORMATS = ("float32", "float16", "int8")


class SelectedEntries(NamedTuple):
    """Some entries of a vector.

    Attributes:
        indices: [k] int64, ascending.
        values: [k] float32.
        elements: of the vector.
        wanted: how many were to be selected, the same on all workers: an int or [] int64.
    """

    indices: tf.Tensor
    values: tf.Tensor
    elements: int
    wanted: Any


def joined(lists: Sequence[SelectedEntries]) -> SelectedEntries:
    """Returns the entries of several vectors, numbered through as if these were one."""
    starts = [sum(each.elements for each in lists[:number]) for number in range(len(lists))]
    return SelectedEntries(
        tf.concat([each.indices + start for each, start in zip(lists, starts)], 0),
        tf.concat([each.values for each in lists], 0),
        sum(each.elements for each in lists),
        sum(each.wanted for each in lists),
    )


def split_up(values: tf.Tensor, lists: Sequence[SelectedEntries]) -> List[tf.Tensor]:
    """Returns what joined lists have, for each by itself."""
    return tf.split(values, tf.stack([tf.size(each.values) for each in lists]), num=len(lists))


def lost_in_writing(values: tf.Tensor, sent: tf.Tensor) -> tf.Tensor:
    """Returns what writing values changed, which is kept; 0 of what is not finite."""
    return tf.where(tf.math.is_finite(values), values - sent, 0.0)


class EntryLists:
    """The entries that one worker sends, of all gradients of an exchange: numbered through, as if these were one vector.

    Args:
        lists: of each gradient.
        value_format: how values are written: one of `VALUE_FORMATS`.
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

        It has the entries that were not selected, and the errors of writing values.
        """
        if self._exact:
            return remaining
        places = self._lists[number].indices[:, tf.newaxis]
        return tf.tensor_scatter_nd_update(remaining, places, self._lost[number])

    def sum_over(self, workers: Workers) -> List[tf.Tensor]:
        """Returns the sums over workers of all vectors, each [elements] float32, formed in the order of ranks; a collective."""
        return workers.gather(
            self._message,
            f"entries of {len(self._elements)} gradients",
            lambda everyone: tf.split(sum_entries(everyone, sum(self._elements)), self._elements),
        )
