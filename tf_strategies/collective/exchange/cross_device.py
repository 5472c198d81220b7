"""Reduces and gathers values over the local replicas first, then between workers.

The collective computes the sum of each element once and copies it, so all replicas on all workers get the
same bits. For a mean, sums are scaled once, at the end.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple, Union

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.collective.exchange.compressed import CompressedGradients
from tf_strategies.collective.exchange.devices import device_of_pack, is_gpu
from tf_strategies.collective.exchange.packing import plan_packs
from tf_strategies.collective.exchange.sparse import SparseExchange, is_small_table
from tf_strategies.collective.exchange.sparse_rows import (
    HOST,
    from_dense,
    merge_rows,
    number_of_rows,
    to_dense,
)
from tf_strategies.collective.worker_group import Collectives
from tf_strategies.compression import Compressor
from tf_strategies.slow_worker import BATCHES
from tf_strategies.types import PerReplica, TensorOrSlices

__all__ = ["CollectiveCrossDeviceOps", "checked_axis"]

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
        compressor: the compressor of gradients. A gradient is a value that goes to a trainable variable.
    """

    def __init__(
        self, group: Collectives, bytes_per_pack: int, compressor: Optional[Compressor] = None
    ) -> None:
        super().__init__()
        self._group = group
        self._gpu = ""
        self._bytes_per_pack = bytes_per_pack
        self._slices = SparseExchange(group, _ON_THE_WIRE)
        self.compressed = (
            None if compressor is None else CompressedGradients(group, compressor, self._sum_over_all)
        )

    def run_on(self, device: str) -> None:
        """Adds up and compresses gradients of a GPU there, if `device` is one and the operations have kernels for it.

        Args:
            device: the first device of this worker.
        """
        has_work = self._group.now.size > 1 or self.compressed is not None
        if not has_work or not is_gpu(device):
            return
        from tf_strategies.native.gpus import use_gpus

        if use_gpus():
            self._gpu = device
            if self.compressed is not None:
                self.compressed.device = device

    @property
    def _num_between_graph_workers(self) -> int:
        # TensorFlow returns values unchanged if this number is 1. With 2 or more it calls
        # `batch_reduce_implementation`, which merges the rows of IndexedSlices and compresses gradients, also
        # for a single worker.
        return max(self._group.now.size, 2)

    def reduce_implementation(self, reduce_op, per_replica_value, destinations, options):
        del options
        return self._reduce_together(reduce_op, [(per_replica_value, destinations)], variables=[None])[0]

    def batch_reduce_implementation(self, reduce_op, value_destination_pairs, options):
        """Reduces [(value, destinations), ...] together. The list has the order of the variables.

        Sums that go to variables are gradients.
        """
        del options
        is_sum = reduce_op == tf.distribute.ReduceOp.SUM
        variables = [
            compat.whole_variable(where) if is_sum and not _holds_variables(value) else None
            for value, where in value_destination_pairs
        ]
        return self._reduce_together(reduce_op, value_destination_pairs, variables)

    def _reduce_together(self, reduce_op, value_destination_pairs, variables):
        values = [value for value, _ in value_destination_pairs]
        local = [self._sum_local_replicas(value) for value in values]
        sums = (
            self._sum_over_all(local) if self.compressed is None else self.compressed.sums(local, variables)
        )
        if reduce_op == tf.distribute.ReduceOp.MEAN:
            workers = self._group.size_in_graph()
            counts = [len(value.values) * workers for value in values]
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
        with tf.device(HOST):
            local = tf.concat(values, axis) if len(values) > 1 else tf.identity(values[0])
            if self._group.now.size > 1:
                local = _swap_axes(self._group.all_gather(_swap_axes(local, axis), name="gather"), axis)
        return compat.place(local, destinations, always_mirrored=True)

    def _sum_over_all(self, values: Sequence[TensorOrSlices], layout: str = "") -> List[TensorOrSlices]:
        """Returns the sums over workers of tensors and IndexedSlices.

        Slices of small tables are sent in the packs of the tensors.
        """
        sums = list(values)
        if self._group.now.size == 1:
            return sums
        sparse = [i for i, value in enumerate(sums) if isinstance(value, tf.IndexedSlices)]
        small = [i for i in sparse if is_small_table(sums[i]) and sums[i].values.dtype in _ON_THE_WIRE]
        large = [i for i in sparse if i not in small]
        dense: List[Tuple[int, tf.Tensor]] = []
        for i, value in enumerate(sums):
            if i in small:
                dense += [(i, part) for part in to_dense(value, number_of_rows(value))]
            elif i not in large:
                dense.append((i, value))
        totals = self.sum_between_workers([tensor for _, tensor in dense], layout)
        parts: Dict[int, List[tf.Tensor]] = {}
        for (i, _), total in zip(dense, totals):
            parts.setdefault(i, []).append(total)
        for i, part in parts.items():
            sums[i] = from_dense(*part, like=sums[i]) if i in small else part[0]
        for i, total in zip(large, self._slices.add_up([sums[i] for i in large])):
            sums[i] = total
        return sums

    def sum_between_workers(self, tensors: Sequence[tf.Tensor], layout: str = "") -> List[tf.Tensor]:
        """Returns the sum over workers of each tensor, computed in packs. A collective."""
        wire = [_to_wire_dtype(tensor) for tensor in tensors]
        packs = plan_packs([_dtype_and_bytes(tensor) for tensor in wire], self._bytes_per_pack)
        results: List[Optional[tf.Tensor]] = [None] * len(tensors)
        for number, pack in enumerate(packs):
            mine = [wire[i] for i in pack]
            with tf.device(device_of_pack(mine, self._gpu)):
                name = BATCHES if _counts_batches(tensors) else f"pack {number} of {len(packs)}"
                sums = self._group.all_reduce(mine, name=name, layout=layout)
                for position, total in zip(pack, sums):
                    results[position] = tf.cast(total, tensors[position].dtype)
        return results

    def _sum_local_replicas(self, value: tf.distribute.DistributedValues) -> TensorOrSlices:
        values = value.values
        if isinstance(values[0], tf.IndexedSlices):
            return merge_rows(values)
        tensors = [tf.convert_to_tensor(part) for part in values]
        if len(tensors) == 1:
            return tensors[0]
        with tf.device(tensors[0].device):
            return tf.add_n(tensors)


def checked_axis(value: PerReplica, axis: Union[int, tf.Tensor]) -> Union[int, tf.Tensor]:
    """Returns the axis along which values of replicas are gathered, counted from the first.

    Raises:
        ValueError: the value does not have this axis.
    """
    if isinstance(value, tf.IndexedSlices):
        return axis
    parts = value.values if isinstance(value, tf.distribute.DistributedValues) else (value,)
    number, rank = tf.get_static_value(axis), tf.convert_to_tensor(parts[0]).shape.rank
    if number is None or rank is None:
        return axis
    if rank == 0:
        raise ValueError(
            "a scalar cannot be gathered, because it has no axis along which to join the values of "
            "replicas; add one with tf.expand_dims(value, 0)"
        )
    if not -rank <= int(number) < rank:
        raise ValueError(
            f"axis must be in [{-rank}, {rank}) to gather a tensor of shape {parts[0].shape}; got {int(number)}"
        )
    return int(number) % rank


def _counts_batches(tensors: Sequence[tf.Tensor]) -> bool:
    """Returns True for the number of replicas with a batch, which TensorFlow's iterators add up before each step."""
    return len(tensors) == 1 and tensors[0].dtype == tf.int64 and tensors[0].shape == [1, 1]


def _holds_variables(value: tf.distribute.DistributedValues) -> bool:
    return any(compat.whole_variable(part) is not None for part in value.values)


def _divide(total, count: Union[int, tf.Tensor]):
    if isinstance(total, tf.IndexedSlices):
        return tf.IndexedSlices(_divide(total.values, count), total.indices, total.dense_shape)
    with tf.device(total.device):
        return total / tf.cast(count, total.dtype)


def _to_wire_dtype(tensor: tf.Tensor) -> tf.Tensor:
    if tensor.dtype in _ON_THE_WIRE:
        return tensor
    if tensor.dtype in _WIDENED:
        return tf.cast(tensor, _WIDENED[tensor.dtype])
    names = ", ".join(dtype.name for dtype in (*_ON_THE_WIRE, *_WIDENED))
    raise TypeError(f"cannot reduce dtype {tensor.dtype.name} between workers; cast to one of {names}")


def _dtype_and_bytes(tensor: tf.Tensor) -> Tuple[tf.DType, Optional[int]]:
    count = tensor.shape.num_elements()
    return tensor.dtype, None if count is None else count * tensor.dtype.size


def _swap_axes(tensor: tf.Tensor, axis: int) -> tf.Tensor:
    """Swaps axis 0 with another axis."""
    if axis == 0:
        return tensor
    order = list(range(tensor.shape.rank))
    order[0], order[axis] = order[axis], order[0]
    return tf.transpose(tensor, order)
