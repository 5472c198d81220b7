"""Embeddings whose rows are looked up in place.

TensorFlow looks rows of a distributed variable up in a tensor of the whole, as Keras 3 does with any variable. That tensor is a
copy once rows of the variable were written: of a table of 50 MB, 50 MB a step.
"""

from __future__ import annotations

from typing import Any, List, Union

import tensorflow as tf

from tf_strategies._tf import compat

__all__ = ["look_up_in_place"]


@compat.register_dispatchable_type
class Table(compat.MirroredVariable):
    """A trainable variable; rows are looked up in the part of this replica."""

    looks_up_in_place = True

    def sparse_read(self, indices, name=None):
        """Returns the rows of these numbers, [...] int16, int32 or int64 -> [..., row shape]."""
        numbers = tf.convert_to_tensor(indices)
        numbers = tf.cast(numbers, tf.int32) if numbers.dtype == tf.int16 else numbers
        return self.part_of_replica().sparse_read(numbers, name=name)

    def part_of_replica(self) -> tf.Variable:
        """Returns the variable of this replica; between replicas that of this device, or the first."""
        return self._get_on_device_or_primary()


def look_up_in_place(variable: Any) -> None:
    """Makes a variable just created a `Table`, if it may be one."""
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

    TensorFlow itself avoids a copy only for the variable of one device.
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
