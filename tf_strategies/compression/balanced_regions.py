"""Cuts a vector into a region for each worker, so that about as many selected entries lie in each region."""

from __future__ import annotations

from typing import Union

import tensorflow as tf

from tf_strategies.compression.base import Workers
from tf_strategies.compression.entry_lists import SelectedEntries

__all__ = ["balanced_regions"]

_HOST = "/device:CPU:0"  # a few hundred whole numbers
_SAMPLES_OF_ALL = 4096  # of 4 bytes; from 42 workers on, this many are gathered


def balanced_regions(mine: SelectedEntries, workers: Workers, name: str) -> tf.Tensor:
    """Returns where regions begin and end, [P + 1] int64, non-decreasing: region r is [offsets[r], offsets[r + 1]).

    A collective, which gives all P workers the same result. Each sends every s-th of its indices, and sorts the
    samples of all. Region r ends behind the last of the first (r + 1) / P of them. Worker r begins with its index
    (r + 1/2) s / P, so that workers with equal indices send different samples.

    Let N be the number of entries of all workers. No region has more than N / P + (P + 1) s of them, wherever they
    lie. Here s is ⌈k / m⌉, k is `mine.wanted`, and m, the samples of a worker, 2 (P + 8). From 42 workers on m is
    ⌊4096 / P⌋, so that all samples take 16 KiB.

    Proof: Let c indices of a worker, and j of its samples, lie before a cut, and let o be the number of its first
    sample. Then c = s j + o - d with 0 <= d < s, and d = s - 1 if the last index before the cut is a sample. The
    sums over workers are C = s J + O - D. Let T be the r / P of all samples before which the cut is due. The sample
    before the cut is that of t workers, so J < T + t and D >= t (s - 1). Hence C is from s T + O - P (s - 1) to
    s T + O + P at each cut. A region lies between two. All samples times s are at most N + P s / 2.

    Args:
        mine: this worker's entries.
        workers: the workers.
        name: identifies the collective.
    """
    with tf.device(_HOST):
        samples = _samples(mine.indices, mine.wanted, workers.rank, workers.size)
        compact = tf.int32 if mine.elements <= tf.int32.max else tf.int64
        [offsets] = workers.gather(
            tf.cast(samples, compact),
            name,
            lambda everyone: [_cuts(tf.cast(everyone, tf.int64), mine.elements, workers.size)],
        )
    return offsets


def _samples(indices: tf.Tensor, wanted: Union[int, tf.Tensor], rank: int, size: int) -> tf.Tensor:
    """Returns each s-th index of worker `rank`, [about m] int64."""
    most = max(1, min(2 * (size + 8), _SAMPLES_OF_ALL // size))
    stride = tf.maximum((tf.cast(wanted, tf.int64) + most - 1) // most, 1)
    return indices[(2 * rank + 1) * stride // (2 * size) :: stride]


def _cuts(samples: tf.Tensor, elements: int, size: int) -> tf.Tensor:
    """Returns the offsets of regions of a vector that have about as many samples each."""
    ascending = tf.concat([tf.sort(samples), [elements - 1]], 0)  # the last one if there are no samples
    inner = tf.range(1, size, dtype=tf.int64)
    last = (inner * tf.size(samples, tf.int64) + size - 1) // size - 1
    return tf.concat([[0], tf.gather(ascending, tf.maximum(last, 0)) + 1, [elements]], 0)
