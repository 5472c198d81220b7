"""Adds up IndexedSlices over workers: by gathering rows, or as dense tables if that moves fewer bytes.

In both cases the result has exactly one row for each index that a replica has. So optimizers that skip
untouched rows do the same in both cases. benchmarks/NOTES.md has the measurements behind the two constants.
"""

from __future__ import annotations

from typing import List, Sequence, Union

import tensorflow as tf

from tf_strategies.collective.exchange.sparse_rows import (
    HOST,
    from_dense,
    merge_rows,
    number_of_rows,
    row_shape,
    to_dense,
)
from tf_strategies.collective.worker_group import Collectives

__all__ = ["DENSE_FROM", "SMALL_TABLE_BYTES", "SparseExchange", "is_small_table"]

# A table is sent as a dense table if the rows of all workers have more than this many times its bytes.
DENSE_FROM = 2.0
# Smaller tables are always sent as dense tables, in the packs of the dense gradients: to send rows would save
# less than the agreement on them costs.
SMALL_TABLE_BYTES = 64 << 10


def dense_bytes(slices: tf.IndexedSlices) -> Union[int, tf.Tensor, None]:
    """Returns the bytes of `to_dense(slices)`: an int if known while tracing, otherwise a tensor; None if unknown."""
    rows = number_of_rows(slices)
    return None if rows is None else (rows + 1) * (row_shape(slices.values)[1] + 1) * slices.values.dtype.size


def is_small_table(slices: tf.IndexedSlices) -> bool:
    """Returns True if the table is known to be so small that it is always sent as a dense table."""
    size = dense_bytes(slices)
    return isinstance(size, int) and size <= SMALL_TABLE_BYTES


class SparseExchange:
    """Adds up IndexedSlices over the workers of a group.

    All tables of a batch share two messages: how many rows each worker has of each table, and then the rows
    of all tables that are gathered. A table whose rows of all workers have more than `DENSE_FROM` times the
    bytes of the dense table goes through an all-reduce of its own instead. All workers decide by the same
    numbers, so they decide the same.

    Args:
        group: two or more workers.
        reducible: the dtypes that an all-reduce supports. Values of other dtypes are always gathered.
    """

    def __init__(self, group: Collectives, reducible: Sequence[tf.DType]) -> None:
        self._group = group
        self._reducible = tuple(reducible)

    def add_up(self, tables: Sequence[tf.IndexedSlices]) -> List[tf.IndexedSlices]:
        """Returns the sums over workers of IndexedSlices. A collective.

        All workers call it with slices of the same tables. The numbers of rows may differ.

        Args:
            tables: slices with distinct indices, as `merge_rows` returns them.

        Returns:
            The sum over workers of each table, with distinct indices, and the same bits on all workers.
        """
        if not tables:
            return []
        with tf.device(HOST):
            counts = self._rows_of_everyone(tables)
            dense = [self._goes_dense(table, tf.reduce_sum(counts[:, i])) for i, table in enumerate(tables)]
            kept = tf.where(
                tf.stack([tf.convert_to_tensor(each) for each in dense]), tf.zeros_like(counts), counts
            )
            gathered = self._gather(tables, kept)
            return [self._total(*each) for each in zip(tables, dense, gathered)]

    def _rows_of_everyone(self, tables: Sequence[tf.IndexedSlices]) -> tf.Tensor:
        """Returns the number of rows of each worker and table, [workers, tables] int64."""
        mine = tf.stack([tf.size(table.indices, out_type=tf.int64) for table in tables])
        alone = tf.one_hot(self._rank(), tf.cast(self._group.size_in_graph(), tf.int32), dtype=tf.int64)
        alone = alone[:, tf.newaxis] * mine
        return self._group.all_reduce([alone], name="rows", layout=_layout(tables))[0]

    def _goes_dense(self, table: tf.IndexedSlices, rows: tf.Tensor) -> Union[bool, tf.Tensor]:
        """Returns a tensor [] bool: whether the table is sent as a dense table. False if this is impossible."""
        size = dense_bytes(table)
        if size is None or table.values.dtype not in self._reducible:
            return False
        bytes_a_row = _bytes_a_row(table.values) + table.indices.dtype.size
        return tf.cast(rows * bytes_a_row, tf.float64) > DENSE_FROM * tf.cast(size, tf.float64)

    def _gather(self, tables: Sequence[tf.IndexedSlices], kept: tf.Tensor) -> List[tf.IndexedSlices]:
        """Gathers the rows of all workers in one message, as bytes.

        `kept` [workers, tables] is the number of rows that each worker sends.
        """
        columns = [part for table in tables for part in (table.indices, table.values)]
        kept = tf.repeat(kept, 2, axis=1)
        mine = tf.gather(kept, self._rank())
        message = tf.concat([_to_bytes(column[: mine[i]]) for i, column in enumerate(columns)], 0)
        everyone = tf.cond(
            tf.reduce_any(kept > 0),
            lambda: self._group.all_gather(message, name="slices", layout=_layout(tables)),
            lambda: message,
        )
        bytes_a_row = tf.stack([tf.cast(_bytes_a_row(column), tf.int64) for column in columns])
        parts = self._parts(everyone, tf.reshape(kept * bytes_a_row, [-1]), len(columns))
        rows = tf.reduce_sum(kept, axis=0)
        whole = [
            _from_bytes(tf.concat(parts[i :: len(columns)], 0), rows[i], column)
            for i, column in enumerate(columns)
        ]
        return [
            tf.IndexedSlices(values, indices, table.dense_shape)
            for indices, values, table in zip(whole[::2], whole[1::2], tables)
        ]

    def _parts(self, everyone: tf.Tensor, lengths: tf.Tensor, columns: int) -> List[tf.Tensor]:
        """Returns the bytes of each worker's columns, given their lengths.

        A function that stays in use when workers are lost has empty parts for them.
        """
        number = self._group.now.size * columns
        if isinstance(self._group.size_in_graph(), tf.Tensor):
            lengths = tf.concat([lengths, tf.zeros([number - tf.size(lengths)], lengths.dtype)], 0)
        return list(tf.split(everyone, lengths, num=number))

    def _rank(self) -> tf.Tensor:
        return tf.cast(self._group.rank_in_graph(), tf.int32)

    def _total(
        self, mine: tf.IndexedSlices, goes_dense: Union[bool, tf.Tensor], gathered: tf.IndexedSlices
    ) -> tf.IndexedSlices:
        def of_rows():
            merged = merge_rows([gathered])
            return merged.values, merged.indices

        def of_tables():
            sums = self._group.all_reduce(
                list(to_dense(mine, number_of_rows(mine))), name="dense table", layout=_layout([mine])
            )
            slices = from_dense(*sums, like=mine)
            return slices.values, slices.indices

        values, indices = of_rows() if goes_dense is False else tf.cond(goes_dense, of_tables, of_rows)
        values.set_shape([None, *mine.values.shape[1:]])
        return tf.IndexedSlices(values, indices, mine.dense_shape)


def _layout(tables: Sequence[tf.IndexedSlices]) -> str:
    """Returns a description of the bytes of tables, which workers compare, so that none misreads the bytes of another."""
    return ", ".join(
        f"{table.values.dtype.name}{list(table.values.shape[1:])} by {table.indices.dtype.name}"
        for table in tables
    )


def _bytes_a_row(column: tf.Tensor) -> Union[int, tf.Tensor]:
    return row_shape(column)[1] * column.dtype.size


def _to_bytes(column: tf.Tensor) -> tf.Tensor:
    return tf.reshape(tf.bitcast(column, tf.uint8), [-1])


def _from_bytes(raw: tf.Tensor, rows: tf.Tensor, like: tf.Tensor) -> tf.Tensor:
    """Returns [rows, ...] of the dtype and row shape of `like`, from [n] uint8."""
    numbers = tf.bitcast(tf.reshape(raw, [-1, like.dtype.size]), like.dtype)
    return tf.reshape(numbers, tf.concat([[rows], tf.cast(row_shape(like)[0], tf.int64)], 0))
