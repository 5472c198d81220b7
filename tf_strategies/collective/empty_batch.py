"""Batches of unequal size: how many rows each replica has, and what a replica without rows may contribute.

A replica whose batch is empty takes part with zero weight. What it computes may not be a number (the mean over no rows
is NaN), and must not spread: where a batch can be empty, values that are not finite are left out of what this replica
gives to reductions and of the state it keeps. With a batch that has rows nothing changes.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

import tensorflow as tf

from tf_strategies._tf import compat

__all__ = ["EmptyBatchGuard"]


class EmptyBatchGuard:
    """Knows, while replicas run, how many rows the batch of each has.

    Args:
        group: the workers.
        local_replicas: the number of replicas of this worker.
    """

    def __init__(self, group, local_replicas: int) -> None:
        self._group = group
        self._local_replicas = local_replicas
        self._rows: List[tf.Tensor] = []
        self._before: Dict[Tuple[int, int], tf.Tensor] = {}
        self._shares: List[Tuple[Any, List[tf.Tensor]]] = []

    def watch(self, fn: Callable, arguments: Any, state: Iterable[tf.Variable]) -> Callable:
        """Returns the replica function `fn`, watched until `forget`.

        Args:
            fn: what every replica runs.
            arguments: its arguments, per replica.
            state: variables that replicas write on their own; they stay finite.
        """
        rows = _rows([_of_replica(replica, arguments) for replica in range(self._local_replicas)])
        if rows is None:
            return fn
        self._rows = rows
        state = list(state)

        @tf.autograph.experimental.do_not_convert
        def watched(*args: Any, **kwargs: Any) -> Any:
            replica = self._local_replica()
            for variable in state:
                self._before[replica, id(variable)] = variable.read_value()
            result = fn(*args, **kwargs)
            if state:
                tf.cond(self._has_rows(replica), lambda: True, lambda: self._settle(state, replica))
            return result

        return watched

    def forget(self) -> None:
        """Ends the watch."""
        self._rows, self._shares = [], []
        self._before.clear()

    def share(self) -> Optional[tf.Tensor]:
        """The rows of the replica that runs, times the number of all replicas, over the rows of all; [] float32.

        1 where all replicas have as many rows. None where shapes say that all have the same number. A collective the first
        time in a graph: all workers ask alike.
        """
        if not self._rows:
            return None
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        for asked, shares in self._shares:
            if asked is graph:
                return shares[self._local_replica()]
        with tf.device("/device:CPU:0"):
            rows = [tf.cast(count, tf.float64) for count in self._rows]
            everywhere = self._group.all_reduce([tf.add_n(rows)], name="rows of the batch")[0]
            replicas = self._group.size * self._local_replicas
            shares = [
                tf.cast(tf.math.divide_no_nan(count * replicas, everywhere), tf.float32) for count in rows
            ]
        self._shares.append((graph, shares))
        return shares[self._local_replica()]

    def contributions(self, value: Any) -> Any:
        """The per-replica value as the replicas that run now may add it to a reduction."""
        if not self._rows:
            return value
        if compat.is_sync_on_read_variable(value):
            return compat.per_replica(
                tuple(
                    self._settled(tf.convert_to_tensor(part), replica, value)
                    for replica, part in enumerate(value.values)
                )
            )
        per_replica = isinstance(value, tf.distribute.DistributedValues)
        if self._local_replicas > 1 and not per_replica:
            return value
        parts = value.values if per_replica else (value,)
        if not all(isinstance(part, tf.Tensor) and part.dtype.is_floating for part in parts):
            return value
        return compat.per_replica(tuple(self._finite(part, replica) for replica, part in enumerate(parts)))

    def _settle(self, state: List[tf.Variable], replica: int) -> bool:
        for variable in state:
            variable.assign(self._settled(variable.read_value(), replica, variable))
        return True

    def _settled(self, value: tf.Tensor, replica: int, variable: Any) -> tf.Tensor:
        """What a variable of the replica holds, but what it held before where that is not finite and there were no rows."""
        before = self._before.get((replica, id(variable)))
        if before is None or not value.dtype.is_floating:
            return value
        return tf.where(self._has_rows(replica) | tf.math.is_finite(value), value, before)

    def _finite(self, value: tf.Tensor, replica: int) -> tf.Tensor:
        """`value`, but 0 where it is not finite and the replica has no rows; with rows it costs no pass over the value."""
        with tf.device(value.device):
            chosen = tf.cond(
                self._has_rows(replica),
                lambda: value,
                lambda: tf.where(tf.math.is_finite(value), value, tf.zeros([], value.dtype)),
            )
        chosen.set_shape(value.shape)
        return chosen

    def _has_rows(self, replica: int) -> tf.Tensor:
        return self._rows[replica] > 0

    def _local_replica(self) -> int:
        everywhere = tf.distribute.get_replica_context().replica_id_in_sync_group
        return int(tf.get_static_value(everywhere)) % self._local_replicas


def _of_replica(replica: int, arguments: Any) -> List[Any]:
    return [
        part.values[replica] if isinstance(part, tf.distribute.DistributedValues) else part
        for part in tf.nest.flatten(arguments)
    ]


def _rows(replicas: List[List[Any]]) -> Optional[List[tf.Tensor]]:
    """The rows of each replica's batch, [] int64; None when shapes say that all have rows, and as many.

    The batch is the first argument whose number of rows is open, or 0, on some replica. Eagerly shapes say nothing about other
    workers' batches.
    """
    for parts in zip(*replicas):
        if any(_is_open(part) for part in parts):
            return [_count(part) for part in parts]
    return None


def _is_open(part: Any) -> bool:
    if isinstance(part, (tf.RaggedTensor, tf.SparseTensor)):
        return True
    if not isinstance(part, tf.Tensor) or not part.shape.rank:
        return False
    return tf.executing_eagerly() or not part.shape[0]


def _count(part: Any) -> tf.Tensor:
    if isinstance(part, tf.RaggedTensor):
        return tf.cast(part.nrows(), tf.int64)
    if isinstance(part, tf.SparseTensor):
        return part.dense_shape[0]
    return tf.shape(part, out_type=tf.int64)[0]
