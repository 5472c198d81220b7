"""How values are reduced and gathered: over the local replicas first, then between workers.

Each element's sum is formed once by the collective and copied, so all replicas on all workers get the same bits. Sums are
scaled once, at the end, for a mean.
"""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.collective.packing import plan_packs

__all__ = ["CollectiveCrossDeviceOps"]

_HOST = "/device:CPU:0"
_ON_THE_WIRE = (tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int32, tf.int64)
_WIDENED = {
    tf.int8: tf.int32,
    tf.uint8: tf.int32,
    tf.int16: tf.int32,
    tf.uint16: tf.int32,
    tf.uint32: tf.int64,
}


class CollectiveCrossDeviceOps(tf.distribute.CrossDeviceOps):
    """Reduces per-replica values over all replicas of all workers.

    A value that is not per-replica counts as one contribution of this worker.

    Args:
        group: the workers.
        bytes_per_pack: tensors reduced together are packed into collectives of about this size.
    """

    def __init__(self, group, bytes_per_pack: int) -> None:
        super().__init__()
        self._group = group
        self._bytes_per_pack = bytes_per_pack

    @property
    def _num_between_graph_workers(self) -> int:
        return self._group.size

    def reduce_implementation(self, reduce_op, per_replica_value, destinations, options):
        return self.batch_reduce_implementation(reduce_op, [(per_replica_value, destinations)], options)[0]

    def batch_reduce_implementation(self, reduce_op, value_destination_pairs, options):
        """Reduces [(value, destinations), ...] together; the order of the list is the order of the variables."""
        del options
        values = [value for value, _ in value_destination_pairs]
        sums: List[Any] = [_sum_local_replicas(value) for value in values]
        dense = [i for i, value in enumerate(sums) if not isinstance(value, tf.IndexedSlices)]
        for i, total in zip(dense, self._sum_between_workers([sums[i] for i in dense])):
            sums[i] = total
        for i, value in enumerate(sums):
            if isinstance(value, tf.IndexedSlices):
                sums[i] = self._gather_slices(value)
        if reduce_op == tf.distribute.ReduceOp.MEAN:
            counts = [len(value.values) * self._group.size for value in values]
            sums = [_divide(total, count) for total, count in zip(sums, counts)]
        elif reduce_op != tf.distribute.ReduceOp.SUM:
            raise ValueError(f"reduce_op must be ReduceOp.SUM or ReduceOp.MEAN; got {reduce_op}")
        return [
            compat.place(total, destinations, always_mirrored=True)
            for total, (_, destinations) in zip(sums, value_destination_pairs)
        ]

    def broadcast_implementation(self, tensor, destinations):
        return compat.place(tensor, destinations, always_mirrored=True)

    def _gather_implementation(self, per_replica_value, destinations, axis, options):
        del options
        values = [tf.convert_to_tensor(value) for value in per_replica_value.values]
        with tf.device(_HOST):
            local = tf.concat(values, axis) if len(values) > 1 else tf.identity(values[0])
            if self._group.size > 1:
                local = _swap_axes(self._group.all_gather(_swap_axes(local, axis), name="gather"), axis)
        return compat.place(local, destinations, always_mirrored=True)

    def _sum_between_workers(self, tensors: Sequence[tf.Tensor]) -> List[tf.Tensor]:
        if self._group.size == 1:
            return list(tensors)
        wire = [_to_wire_dtype(tensor) for tensor in tensors]
        packs = plan_packs([_dtype_and_bytes(tensor) for tensor in wire], self._bytes_per_pack)
        results: List[Any] = [None] * len(tensors)
        with tf.device(_HOST):
            for number, pack in enumerate(packs):
                name = f"pack {number} of {len(packs)}"
                for position, total in zip(pack, self._group.all_reduce([wire[i] for i in pack], name=name)):
                    results[position] = tf.cast(total, tensors[position].dtype)
        return results

    def _gather_slices(self, slices: tf.IndexedSlices) -> tf.IndexedSlices:
        """The rows of all workers, rank by rank; rows that share an index add up wherever slices are applied."""
        if self._group.size == 1:
            return slices
        with tf.device(_HOST):
            return tf.IndexedSlices(
                self._group.all_gather(slices.values, name="slices: values"),
                self._group.all_gather(slices.indices, name="slices: indices"),
                slices.dense_shape,
            )


def _sum_local_replicas(value):
    values = value.values
    if isinstance(values[0], tf.IndexedSlices):
        if len(values) == 1:
            return values[0]
        with tf.device(values[0].device):
            return tf.IndexedSlices(
                tf.concat([part.values for part in values], 0),
                tf.concat([part.indices for part in values], 0),
                values[0].dense_shape,
            )
    tensors = [tf.convert_to_tensor(part) for part in values]
    if len(tensors) == 1:
        return tensors[0]
    with tf.device(tensors[0].device):
        return tf.add_n(tensors)


def _divide(total, count: int):
    if isinstance(total, tf.IndexedSlices):
        return tf.IndexedSlices(_divide(total.values, count), total.indices, total.dense_shape)
    with tf.device(total.device):
        return total / count


def _to_wire_dtype(tensor: tf.Tensor) -> tf.Tensor:
    if tensor.dtype in _ON_THE_WIRE:
        return tensor
    if tensor.dtype in _WIDENED:
        return tf.cast(tensor, _WIDENED[tensor.dtype])
    names = ", ".join(dtype.name for dtype in (*_ON_THE_WIRE, *_WIDENED))
    raise TypeError(f"cannot reduce dtype {tensor.dtype.name} between workers; cast to one of {names}")


def _dtype_and_bytes(tensor: tf.Tensor) -> Tuple[tf.DType, Any]:
    count = tensor.shape.num_elements()
    return tensor.dtype, None if count is None else count * tensor.dtype.size


def _swap_axes(tensor: tf.Tensor, axis: int) -> tf.Tensor:
    """Exchanges axis 0 with another; its own inverse."""
    if axis == 0:
        return tensor
    order = list(range(tensor.shape.rank))
    order[0], order[axis] = order[axis], order[0]
    return tf.transpose(tensor, order)
