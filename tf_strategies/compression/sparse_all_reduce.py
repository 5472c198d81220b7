"""Sparse all-reduce: a worker receives about as many entries for any number of workers."""

from __future__ import annotations

from typing import List, Sequence, Tuple, Union

import tensorflow as tf

from tf_strategies.compression.balanced_regions import balanced_regions
from tf_strategies.compression.base import Workers
from tf_strategies.compression.entry_lists import (
    EntryLists,
    SelectedEntries,
    joined,
    lost_in_writing,
    split_up,
    starts_of,
)
from tf_strategies.native.entries import encode_entries, encode_regions, merge_entries, sum_entries
from tf_strategies.native.top_k import top_k

__all__ = ["EXCHANGES", "SparseAllReduce", "lists_for"]

EXCHANGES = ("all_gather", "reduce_scatter")


class SparseAllReduce:
    """Adds up the entries that workers send, as `EntryLists` does. About the k largest sums come back.

    The gradients, seen as one long vector, are cut into P regions, one for each worker, in which lie about as many
    entries each. Every worker sends each other worker the entries in that worker's region (reduce-scatter). The
    owner of a region adds the entries up and sends its ⌈k / P⌉ largest sums to all workers (all-gather), where k
    is the number of entries that each worker selects. The owner keeps the other sums, and the rounding errors,
    as unsent.

    The regions follow the entries of each step. Wherever these lie, a worker receives at most 3/2 k + P + 1 entries
    in the first half and k + P in the second: 2.5 k + 2 P + 1 in all. With more than 44 workers the first half has
    at most about (1 + P² / 4096) k. `balanced_regions` says why.

    Args:
        lists: the entries of each gradient.
        value_format: how values are encoded in both halves: one of `VALUE_FORMATS`.

    References:
        Li & Hoefler 2022, "Near-optimal sparse allreduce for distributed deep learning" (Ok-Topk). In the
        paper the regions follow the distribution of the entries of an earlier step, and one estimated threshold
        selects the sums. Here they follow that of this step, and each region has an equal share of k.
    """

    def __init__(self, lists: Sequence[SelectedEntries], value_format: str) -> None:
        self._lists = lists
        self._format = value_format
        self._exact = value_format == "float32"

    def sum_over(self, workers: Workers) -> List[tf.Tensor]:
        """Returns the largest entries of the sum over workers of each vector, [elements] float32, and 0 elsewhere.

        A collective.
        """
        mine = joined(self._lists)
        what = f"entries of {len(self._lists)} gradients"
        offsets = balanced_regions(mine, workers, f"places of {what}")
        begin, end = tf.unstack(offsets[workers.rank : workers.rank + 2], 2)
        regions = encode_regions(mine.indices, mine.values, offsets, value_format=self._format)
        if not self._exact:
            self._lost = split_up(lost_in_writing(mine.values, regions.sent), self._lists)
        received = workers.all_to_all(regions.messages, regions.lengths, name=what)
        share = (mine.wanted + workers.size - 1) // workers.size
        largest = self._largest(received, share, begin, end, mine.elements)
        return workers.gather(
            largest,
            f"largest {what}",
            lambda everyone: tf.split(
                sum_entries(everyone, mine.elements), [each.elements for each in self._lists]
            ),
        )

    def unsent(self, number: int, remaining: tf.Tensor) -> tf.Tensor:
        """Returns the part of a vector that this worker keeps, [elements] float32. Call it after `sum_over`."""
        kept = remaining
        if not self._exact:
            places = self._lists[number].indices[:, tf.newaxis]
            kept = tf.tensor_scatter_nd_update(kept, places, self._lost[number])
        places, values = self._held_back[number]
        # To add nothing would copy the vector. Most vectors lie in the regions of others.
        return tf.cond(
            tf.size(values) > 0, lambda: tf.tensor_scatter_nd_add(kept, places, values), lambda: kept
        )

    def _largest(
        self, received: tf.Tensor, k: Union[int, tf.Tensor], begin: tf.Tensor, end: tf.Tensor, elements: int
    ) -> tf.Tensor:
        """Returns a message with the k largest sums of this worker's region. The other sums are kept."""
        indices, sums = merge_entries(received, end - begin)
        k = tf.minimum(tf.cast(k, tf.int64), tf.size(sums, tf.int64))
        chosen = top_k(sums, tf.zeros_like(sums), k)
        places = indices + begin
        message, sent = encode_entries(
            tf.gather(places, chosen.indices), chosen.values, elements, value_format=self._format
        )
        rest = chosen.remaining
        if not self._exact:
            lost = lost_in_writing(chosen.values, sent)
            rest = tf.tensor_scatter_nd_update(rest, chosen.indices[:, tf.newaxis], lost)
        self._held_back = self._by_vector(places, rest)
        return message

    def _by_vector(self, places: tf.Tensor, values: tf.Tensor) -> List[Tuple[tf.Tensor, tf.Tensor]]:
        """Splits entries of this worker's region by vector: [u, 1] int64 indices within the vector, and [u] values."""
        starts = starts_of(self._lists)
        inner = tf.cast(tf.searchsorted(places, tf.constant(starts[1:], tf.int64)), tf.int64)
        cuts = tf.concat([[0], inner, [tf.size(places, tf.int64)]], 0)
        parts = [
            tf.split(each, cuts[1:] - cuts[:-1], num=len(starts)) for each in (places[:, tf.newaxis], values)
        ]
        return [(inside - start, part) for inside, part, start in zip(*parts, starts)]


def lists_for(
    exchange: str, lists: Sequence[SelectedEntries], value_format: str, workers: Workers
) -> Union[EntryLists, SparseAllReduce]:
    """Returns the object that carries out an exchange, one of `EXCHANGES`.

    For a single worker both are the same.
    """
    if exchange == "reduce_scatter" and workers.size > 1:
        return SparseAllReduce(lists, value_format)
    return EntryLists(lists, value_format)
