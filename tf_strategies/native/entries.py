"""Some elements of a vector as one message of bytes, and the sum of the messages of all workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tf_strategies.native import loader


class EncodedEntries(NamedTuple):
    """The result of `encode_entries`.

    Attributes:
        message: [m] uint8. Messages laid one after another can be read again: each says how long it is.
        sent: [k] float32, the values as every reader of the message sees them.
    """

    message: tf.Tensor
    sent: tf.Tensor


class EncodedRegions(NamedTuple):
    """The result of `encode_regions`.

    Attributes:
        messages: [m] uint8, one message a region, one after another.
        lengths: [regions] int64, how many bytes each has.
        sent: [k] float32, the values as every reader of the messages sees them.
    """

    messages: tf.Tensor
    lengths: tf.Tensor
    sent: tf.Tensor


class Entries(NamedTuple):
    """Some elements of a vector.

    Attributes:
        indices: [u] int64, ascending.
        values: [u] float32.
    """

    indices: tf.Tensor
    values: tf.Tensor


def encode_entries(
    indices: tf.Tensor, values: tf.Tensor, count: int | tf.Tensor, *, value_format: str = "float32"
) -> EncodedEntries:
    """Writes k entries of a vector as one message, such as `top_k` selects.

    The indices are written as gaps, bit-packed in blocks of 128, or as a bitmap, whichever is shorter.

    Args:
        indices: [k] int64, strictly ascending, from 0 up to count - 1.
        values: [k] float32, the elements there.
        count: elements of the vector, up to 2**48.
        value_format: "float32"; "float16", which rounds to halves times one power of two for the message, so that none
            overflows; or "int8", which rounds to multiples of one scale for every 256 values. What is not finite stays so.

    Raises:
        tf.errors.InvalidArgumentError: an index is out of range or out of order, or the lengths differ.
    """
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
    """Writes k entries of a vector as one message for each of some regions of it.

    Each message is what `encode_entries` writes of a vector that has the elements of its region only, numbered from its first.

    Args:
        indices: [k] int64, strictly ascending, from 0 up to offsets[-1] - 1.
        values: [k] float32, the elements there.
        offsets: [regions + 1] int64, non-decreasing from 0: region r has elements offsets[r] to offsets[r + 1] - 1.
        value_format: as for `encode_entries`, for each message by itself.

    Raises:
        tf.errors.InvalidArgumentError: an index is out of range or out of order, the lengths differ, or offsets decrease.
    """
    return EncodedRegions(
        *loader.library().tf_strategies_encode_regions(
            indices=indices, values=values, offsets=tf.cast(offsets, tf.int64), value_format=value_format
        )
    )


def sum_entries(messages: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
    """Returns the sum of messages as a vector, [count] float32: 0 where none has an entry.

    Each element is added up in the order of the messages: who has the same bytes gets the same bits.

    Args:
        messages: [m] uint8, any number of what `encode_entries` wrote, one after another.
        count: elements of the vector that all of them are entries of.

    Raises:
        tf.errors.InvalidArgumentError: the bytes are damaged, or of a vector of another length.
    """
    return loader.library().tf_strategies_sum_entries(messages=messages, count=tf.cast(count, tf.int64))


def merge_entries(messages: tf.Tensor, count: int | tf.Tensor) -> Entries:
    """Returns the sum of messages as a list of every index that one of them has, also where values cancel to 0.

    Args:
        messages: as for `sum_entries`, which forms the same sum.
        count: elements of the vector that all of them are entries of.

    Raises:
        tf.errors.InvalidArgumentError: the bytes are damaged, or of a vector of another length.
    """
    return Entries(
        *loader.library().tf_strategies_merge_entries(messages=messages, count=tf.cast(count, tf.int64))
    )
