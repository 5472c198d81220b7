"""Finds variables that replicas write from their rows, but not as a mean over them.

The values that replicas write are averaged, weighted by rows. For means over rows, such as those of batch normalization, that is
the mean over the joint batch. It is something else for sums over rows (codebooks of a VQ-VAE), for queues of rows (MoCo) and for
means over some of the rows (centers of classes).
"""

from __future__ import annotations

from typing import Callable, List, Optional, Sequence, Set, Tuple

import tensorflow as tf

from tf_strategies.collective.variables.written_variables import Write
from tf_strategies.row_checks.graph_search import CALLS, MOST_STEPS, NOT_LINEAR, gives_rows
from tf_strategies.row_checks.shared_tensors import SharedTensors

__all__ = ["MESSAGE", "rows_in"]

MESSAGE = (
    "The step gives variable %r a value that depends on the rows of a replica, but is no mean over them: it comes from %s. The "
    "values of the %d replicas are averaged, so it will not be that of one process. Compute it from all rows, with "
    "tfs.joint_rows; see docs/losses_and_train_steps.md, 'Variables that keep rows or sums'"
)

_WRITES = (
    "AssignVariableOp", "AssignAddVariableOp", "AssignSubVariableOp", "ResourceScatterUpdate", "ResourceScatterAdd",
)  # fmt: skip
_EQUAL = (
    "Const", "ReadVariableOp", "VarIsInitializedOp", "Rank", "ZerosLike", "OnesLike",
    "FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3",
)  # fmt: skip
_CHOICES = ("SelectV2", "Select")
_DIVISIONS = ("RealDiv", "Div", "DivNoNan")
_COUNTS = ("Shape", "ShapeN", "Size", "Sum")
_REDUCTIONS = (
    "Shape", "ShapeN", "Size", "Sum", "Max", "Min", "Prod", "MatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum",
    "UnsortedSegmentSum", "SegmentSum", "ConcatV2", "Pack", "StridedSlice", "Slice", "GatherV2", "ScatterNd",
    "TensorScatterAdd", "TensorScatterUpdate",
)  # fmt: skip


def rows_in(write: Write, shared: SharedTensors) -> Optional[str]:
    """Returns the type of the operation through which rows come into the new value of a variable, or None.

    None also stands for a mean over rows, for what all replicas have, and for what cannot be told.
    """
    if write.op.type not in _WRITES:
        return None
    for value in write.op.inputs[1:]:
        found = _Search(write.outside, shared).rows_in(value)
        if found is not None:
            return found
    return None


class _Search:
    """Looks for rows in what a tensor is computed from."""

    def __init__(self, outside: Callable[[tf.Tensor], tf.Tensor], shared: SharedTensors) -> None:
        self._outside, self._shared = outside, shared
        self._seen: Set[Tuple[int, str, bool, str]] = set()

    def rows_in(self, value: tf.Tensor) -> Optional[str]:
        """Does the same as the function of this name, for one tensor."""
        to_see: List[Tuple[tf.Tensor, str, bool, str]] = [(value, "", False, "")]
        while to_see:
            tensor, reduction, is_divided, bent_by = to_see.pop()
            op = tensor.op
            key = (id(op.graph), tensor.name, is_divided, bent_by)
            if key in self._seen or tensor in self._shared:
                continue
            self._seen.add(key)
            if len(self._seen) > MOST_STEPS or (op.type in CALLS and not gives_rows(op)):
                return None
            if op.type == "Placeholder":
                outside = self._outside(tensor)
                if outside is tensor:
                    if _may_have_rows(tensor):
                        return reduction or "its rows"
                elif hasattr(outside, "op") and not hasattr(outside, "numpy"):
                    to_see.append((outside, reduction, is_divided, bent_by))
                continue
            if gives_rows(op) and _may_have_rows(tensor):
                return reduction or "its rows"
            if op.type in CALLS or op.type in _EQUAL:
                continue
            if (op.type == "Mean" or (op.type == "Sum" and is_divided)) and _is_over_rows(op):
                if bent_by:
                    return bent_by
                continue
            if op.type in NOT_LINEAR:
                bent_by = bent_by or str(op.type)
            if op.type in _REDUCTIONS:
                reduction = reduction or str(op.type)
            if op.type in _DIVISIONS and self._counts(op.inputs[1]):
                to_see.append((op.inputs[0], reduction, True, bent_by))
                continue
            if op.type == "IdentityN":
                to_see.append((op.inputs[tensor.value_index], reduction, is_divided, bent_by))
            else:
                first = 1 if op.type in _CHOICES else 0  # the condition is not looked at
                to_see += [(each, reduction, is_divided, bent_by) for each in op.inputs[first:]]
        return None

    def _counts(self, divisor: tf.Tensor) -> bool:
        """Returns True if a divisor may be a number of rows, or the sum of their weights."""
        to_see, seen = [divisor], set()
        while to_see and len(seen) < MOST_STEPS:
            tensor = to_see.pop()
            if tensor.name in seen:
                continue
            seen.add(tensor.name)
            if tensor.op.type in _COUNTS or tensor in self._shared:
                return True
            if tensor.op.type not in _EQUAL:
                to_see += list(tensor.op.inputs)
        return False


def _may_have_rows(tensor: tf.Tensor) -> bool:
    return tensor.dtype not in (tf.resource, tf.variant, tf.bool) and tensor.shape.rank != 0


def _is_over_rows(op: tf.Operation) -> bool:
    """Returns True if a reduction includes the first axis, or it cannot be told."""
    axes = tf.get_static_value(op.inputs[1])
    if axes is None:
        return True
    listed: Sequence[int] = axes.ravel().tolist()
    rank = op.inputs[0].shape.rank
    return (
        0 in listed or (rank is None and min(listed, default=0) < 0) or (rank is not None and -rank in listed)
    )
