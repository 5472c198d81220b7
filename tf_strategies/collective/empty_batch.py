"""A replica whose batch is empty takes part with zero weight: what it computes may not be a number, and must not spread.

The mean over no rows is NaN: in batch normalization, and in losses that users write. Where a batch can be empty,
values that are not finite are left out of what this replica gives to reductions and of the state it keeps; with a
batch that has rows nothing changes.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, Optional

import tensorflow as tf

from tf_strategies._tf import compat

__all__ = ["EmptyBatchGuard"]


class EmptyBatchGuard:
    """Knows, while replicas run, which of them have an empty batch.

    Args:
        local_replicas: the number of replicas of this worker.
    """

    def __init__(self, local_replicas: int) -> None:
        self._local_replicas = local_replicas
        self._has_rows: Dict[int, tf.Tensor] = {}

    def wrap(self, fn: Callable, state: Iterable[tf.Variable]) -> Callable:
        """Returns the replica function `fn`, watched; the variables in `state` stay finite."""

        def watched(*args: Any, **kwargs: Any) -> Any:
            has_rows = _has_rows((args, kwargs))
            if has_rows is None:
                return fn(*args, **kwargs)
            kept = [(variable, variable.read_value()) for variable in state]
            self._has_rows[self._local_replica()] = has_rows
            result = fn(*args, **kwargs)
            for variable, before in kept:
                variable.assign(_finite_or(variable.read_value(), before, has_rows))
            return result

        return watched

    def forget(self) -> None:
        """Ends the watch."""
        self._has_rows.clear()

    def contributions(self, value: Any) -> Any:
        """The per-replica value as the replicas that run now may add it to a reduction."""
        per_replica = isinstance(value, tf.distribute.DistributedValues)
        if not self._has_rows or (self._local_replicas > 1 and not per_replica):
            return value
        parts = value.values if per_replica else (value,)
        if not all(isinstance(part, tf.Tensor) and part.dtype.is_floating for part in parts):
            return value
        return compat.per_replica(
            tuple(
                _finite_or(part, tf.zeros([], part.dtype), self._has_rows[replica])
                if replica in self._has_rows
                else part
                for replica, part in enumerate(parts)
            )
        )

    def _local_replica(self) -> int:
        everywhere = tf.distribute.get_replica_context().replica_id_in_sync_group
        return int(tf.get_static_value(everywhere)) % self._local_replicas


def _finite_or(value: tf.Tensor, other: tf.Tensor, has_rows: tf.Tensor) -> tf.Tensor:
    with tf.device(value.device):
        chosen = tf.cond(has_rows, lambda: value, lambda: tf.where(tf.math.is_finite(value), value, other))
    chosen.set_shape(value.shape)
    return chosen


def _has_rows(arguments: Any) -> Optional[tf.Tensor]:
    """Whether any batch among the arguments has rows; None when none of them can be empty."""
    batches = [
        part for part in tf.nest.flatten(arguments) if isinstance(part, tf.Tensor) and _may_be_empty(part)
    ]
    if not batches:
        return None
    return tf.reduce_any([tf.shape(batch)[0] > 0 for batch in batches])


def _may_be_empty(tensor: tf.Tensor) -> bool:
    return bool(tensor.shape.rank) and not tensor.shape[0]
