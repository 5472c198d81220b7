"""Encodes selected elements of a vector as a message of bytes, and adds up the messages of all workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tf_strategies.native import loader

_HOST = "/device:CPU:0"  # of these operations only `sum_entries` has a kernel for GPUs


class EncodedEntries(NamedTuple):
    """Holds the result of `encode_entries`.

    Attributes:
        message: [m] uint8. Concatenated messages can be decoded, because each contains its length.
        sent: [k] float32, the values after decoding.
    """

    message: tf.Tensor
    sent: tf.Tensor


class EncodedRegions(NamedTuple):
    """Holds the result of `encode_regions`.

    Attributes:
        messages: [m] uint8, the concatenated messages of all regions.
        lengths: [regions] int64, the number of bytes of each message.
        sent: [k] float32, the values after decoding.
    """

    messages: tf.Tensor
    lengths: tf.Tensor
    sent: tf.Tensor


class Entries(NamedTuple):
    """Holds selected elements of a vector.

    Attributes:
        indices: [u] int64, ascending.
        values: [u] float32.
    """

    indices: tf.Tensor
    values: tf.Tensor


def encode_entries(
    indices: tf.Tensor, values: tf.Tensor, count: int | tf.Tensor, *, value_format: str = "float32"
) -> EncodedEntries:
    """Encodes k entries of a vector, such as those that `top_k` selects, as one message.

    The indices are written as gaps, bit-packed in blocks of 128, or as a bitmap, whichever is shorter.

    Args:
        indices: [k] int64, strictly ascending, from 0 up to count - 1.
        values: [k] float32, the elements at these indices.
        count: the length of the vector, up to 2**48.
        value_format: "float32", "float16" or "int8". "float16" rounds to float16 after it has divided all values of the
            message by one power of two, so that none overflows. "int8" rounds to multiples of a scale, which 256 values
            share. Values that are not finite stay so.

    Raises:
        tf.errors.InvalidArgumentError: an index is out of range or out of order, or the lengths differ.
    """
    with tf.device(_HOST):
        return EncodedEntries(
            *loader.library().tf_strategies_encode_entries(
                indices=indices, values=values, count=tf.cast(count, tf.int64), value_format=value_format
            )
        )


def encode_regions(
    indices: tf.Tensor,
    values: tf.Tensor,
    offsets: Sequence[int] | tf.Tensor,
    *,
    value_format: str = "float32",
) -> EncodedRegions:
    """Encodes k entries of a vector as one message for each region of the vector.

    Each message is that of `encode_entries` for a vector that consists of the region.

    Args:
        indices: [k] int64, strictly ascending, from 0 up to offsets[-1] - 1.
        values: [k] float32, the elements at these indices.
        offsets: [regions + 1] int64, non-decreasing from 0: region r has elements offsets[r] to offsets[r + 1] - 1.
        value_format: as for `encode_entries`. It applies to each message separately.

    Raises:
        tf.errors.InvalidArgumentError: an index is out of range or out of order, the lengths differ, or offsets decrease.
    """
    with tf.device(_HOST):
        return EncodedRegions(
            *loader.library().tf_strategies_encode_regions(
                indices=indices, values=values, offsets=tf.cast(offsets, tf.int64), value_format=value_format
            )
        )


def sum_entries(messages: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
    """Returns the sum of messages as a vector, [count] float32, which is 0 where no message has an entry.

    Each element is added up in the order of the messages, so equal bytes give equal bits.

    Args:
        messages: [m] uint8, any number of concatenated messages of `encode_entries`.
        count: the length of the vector to which all entries belong.

    Raises:
        tf.errors.InvalidArgumentError: the bytes are damaged, or belong to a vector of another length.
    """
    return loader.library().tf_strategies_sum_entries(messages=messages, count=tf.cast(count, tf.int64))


def merge_entries(messages: tf.Tensor, count: int | tf.Tensor) -> Entries:
    """Returns the sum of messages as entries: all their indices, even if the values at an index add up to 0.

    Args:
        messages: as for `sum_entries`, which computes the same sum.
        count: the length of the vector to which all entries belong.

    Raises:
        tf.errors.InvalidArgumentError: the bytes are damaged, or belong to a vector of another length.
    """
    with tf.device(_HOST):
        return Entries(
            *loader.library().tf_strategies_merge_entries(messages=messages, count=tf.cast(count, tf.int64))
        )
