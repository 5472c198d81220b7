"""Looks up rows of embeddings in place.

TensorFlow reads a distributed variable as a whole to look up rows, and Keras 3 does so with any variable.
After rows of the variable were written, this read is a copy: for a table of 50 MB, 50 MB in each step.
"""

from __future__ import annotations

from typing import List, Union

import tensorflow as tf

from tf_strategies._tf import compat

__all__ = ["look_up_in_place"]


@compat.register_dispatchable_type
class Table(compat.MirroredVariable):
    """A trainable variable whose rows are looked up in the variable of this replica."""

    looks_up_in_place = True

    def sparse_read(self, indices, name=None):
        """Returns the rows with these indices, [...] int16, int32 or int64 -> [..., row shape]."""
        numbers = tf.convert_to_tensor(indices)
        numbers = tf.cast(numbers, tf.int32) if numbers.dtype == tf.int16 else numbers
        return self.part_of_replica().sparse_read(numbers, name=name)

    def part_of_replica(self) -> tf.Variable:
        """Returns the variable of this replica; outside of replica functions that of the current device, or the first."""
        return self._get_on_device_or_primary()


def look_up_in_place(variable: tf.Variable) -> None:
    """Turns a new variable into a `Table`, if possible."""
    if type(variable) is compat.MirroredVariable and variable.trainable and (variable.shape.rank or 0) > 1:
        variable.__class__ = Table


_TABLES = Union[Table, List[Table]]


@tf.experimental.dispatch_for_api(tf.compat.v1.nn.embedding_lookup, {"params": _TABLES, "ids": tf.Tensor})
def _embedding_lookup(params, ids, partition_strategy="mod", name=None, validate_indices=True, max_norm=None):
    """Replaces `tf.nn.embedding_lookup`, which Keras 2 calls."""
    del partition_strategy, validate_indices
    tables = params if isinstance(params, list) else [params]
    if len(tables) != 1 or max_norm is not None:
        return NotImplemented
    return tf.gather(tables[0], ids, name=name or "embedding_lookup")


@tf.experimental.dispatch_for_api(
    tf.compat.v1.nn.embedding_lookup_sparse, {"params": _TABLES, "sp_ids": tf.SparseTensor}
)
def _embedding_lookup_sparse(
    params,
    sp_ids,
    sp_weights,
    partition_strategy="mod",
    name=None,
    combiner=None,
    max_norm=None,
    allow_fast_lookup=False,
):
    """Replaces `tf.nn.embedding_lookup_sparse`, which Estimator's embedding columns call.

    TensorFlow itself avoids the copy only for a variable of a single device.
    """
    tables = params if isinstance(params, list) else [params]
    if not tables or any(type(table) is not Table for table in tables):
        return NotImplemented  # Keras 2 casts some variables when they are read
    return tf.compat.v1.nn.embedding_lookup_sparse(
        [table.part_of_replica() for table in tables],
        sp_ids,
        sp_weights,
        partition_strategy,
        name,
        combiner,
        max_norm,
        allow_fast_lookup,
    )
