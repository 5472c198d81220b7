"""Finds metrics whose state is no sum.

Each replica has a state of its own, and a read adds up those of all replicas. That is right for sums and counts. A metric that
keeps the largest value of all batches, or the last one, would show a multiple of it.
"""

from __future__ import annotations

from typing import List, Optional, Set, Tuple

import tensorflow as tf

from tf_strategies.collective.variables.written_variables import Write
from tf_strategies.row_checks.graph_search import CALLS, MOST_STEPS

__all__ = ["MESSAGE", "what_sets"]

MESSAGE = (
    "A metric gives its variable %r a value that is not the old one plus something: it comes from %s. The values on the %d "
    "replicas are added up, so the metric will not be that of one process. Let the metric keep sums and counts, or see "
    "docs/losses_and_train_steps.md, 'Metrics that keep no sums'"
)

_SAME = ("Identity", "Cast", "Reshape", "EnsureShape", "StopGradient", "Squeeze", "ExpandDims")
_SUMS = ("AddV2", "Add", "AddN")
_ADD_TO_FIRST = ("Sub", "TensorScatterAdd", "TensorScatterSub")
_CHOICES = ("SelectV2", "Select")
_UNKNOWN = (*CALLS, "Pack", "ConcatV2")


def what_sets(write: Write) -> Optional[str]:
    """Returns the type of the operation that makes the new value of a variable; None if it adds to the old one, or unknown."""
    if write.op.type != "AssignVariableOp":
        return None
    value = _source(write.op.inputs[1])
    return None if _may_add(value, write) else str(value.op.type)


def _may_add(value: tf.Tensor, write: Write) -> bool:
    """Returns False if a value is neither the old value of the variable, nor that plus something, nor 0."""
    to_see: List[Tuple[tf.Tensor, bool]] = [(value, False)]
    seen: Set[str] = set()
    while to_see:
        tensor, is_summand = to_see.pop()
        tensor = _source(tensor)
        op = tensor.op
        if tensor.name in seen:
            continue
        seen.add(tensor.name)
        if write.reads(op) or op.type in _UNKNOWN or len(seen) > MOST_STEPS:
            return True
        if not is_summand and _is_zero(tensor):
            return True
        if op.type in _SUMS:
            to_see += [(each, True) for each in op.inputs]
        elif op.type in _ADD_TO_FIRST:
            to_see.append((op.inputs[0], True))
        elif op.type in _CHOICES:
            to_see += [(each, is_summand) for each in op.inputs[1:]]
    return False


def _is_zero(tensor: tf.Tensor) -> bool:
    if tensor.op.type == "ZerosLike":
        return True
    value = tf.get_static_value(tensor)
    return value is not None and not value.any()


def _source(tensor: tf.Tensor) -> tf.Tensor:
    """Returns the tensor behind operations that do not change the numbers."""
    while tensor.op.type in _SAME or tensor.op.type == "IdentityN":
        tensor = tensor.op.inputs[tensor.value_index if tensor.op.type == "IdentityN" else 0]
    return tensor
