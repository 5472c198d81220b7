"""Finds losses of a `train_step` that divide by a number which depends on the rows of a replica.

A masked mean divides the sum over the valid rows by their number. The mean of such quotients over replicas is not the quotient
of the joint batch, unless all replicas have the same number of valid rows.
"""

from __future__ import annotations

import logging
from typing import Callable, Optional

import tensorflow as tf

from tf_strategies.collective.variables.averaged_states import SharedTensors
from tf_strategies.collective.variables.written_variables import CALLS, MOST_STEPS, Captures

__all__ = ["MESSAGE", "LossQuotients", "divisor_of_rows"]

MESSAGE = (
    "A loss divides by a number that depends on the rows of the replica: the result of %s %r. A mean over some of the rows, as "
    "with a mask, is such a loss. The quotients of the %d replicas are averaged, which is not the quotient of one process. "
    "Compute the loss from all rows, with tfs.joint_rows; see docs/losses_and_train_steps.md, 'Means over some of the rows'"
)

_log = logging.getLogger("tf_strategies")

_DATA = ("IteratorGetNext", "OptionalGetValue", "IteratorGetNextAsOptional")
_DIVISIONS = ("RealDiv", "Div", "DivNoNan", "TruncateDiv")
_EQUAL = ("Const", "ReadVariableOp", "Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike")


class LossQuotients:
    """Warns, once, of a loss that divides by a number of its own rows.

    Args:
        shared: the tensors that have the rows of all replicas.
        replicas: returns the number of all replicas.
        is_first: returns whether this worker is the one that warns.
    """

    def __init__(
        self, *, shared: SharedTensors, replicas: Callable[[], int], is_first: Callable[[], bool]
    ) -> None:
        self._shared, self._replicas, self._is_first = shared, replicas, is_first
        self._warned = False

    def look_at(self, loss: tf.Tensor) -> None:
        """Looks at the operations by which a loss is computed. An eager loss has none."""
        if self._warned or not self._is_first() or hasattr(loss, "numpy"):
            return
        divisor = divisor_of_rows(loss, self._shared)
        if divisor is not None:
            self._warned = True
            _log.warning(
                MESSAGE,
                divisor.op.type,
                divisor.op.name,
                self._replicas(),
            )


def divisor_of_rows(loss: tf.Tensor, shared: SharedTensors) -> Optional[tf.Tensor]:
    """Returns a scalar by which a loss is divided, and which is computed from values of the rows; None if there is none."""
    captures, to_see, seen = Captures(), [loss], set()
    while to_see and len(seen) < MOST_STEPS:
        tensor = to_see.pop()
        if _is_known(tensor, shared) or (id(tensor.graph), tensor.name) in seen:
            continue
        seen.add((id(tensor.graph), tensor.name))
        op = tensor.op
        if op.type == "Placeholder":
            to_see += _outside(tensor, captures)
        elif op.type in _DIVISIONS and op.inputs[1].shape.rank == 0:
            if _depends_on_rows(op.inputs[1], shared, captures):
                return op.inputs[1]
            to_see.append(op.inputs[0])
        elif op.type == "IdentityN":
            to_see.append(op.inputs[tensor.value_index])
        elif op.type not in CALLS and op.type not in _DATA:
            to_see += list(op.inputs)
    return None


def _depends_on_rows(value: tf.Tensor, shared: SharedTensors, captures: Captures) -> bool:
    to_see, seen = [value], set()
    while to_see and len(seen) < MOST_STEPS:
        tensor = to_see.pop()
        if _is_known(tensor, shared) or (id(tensor.graph), tensor.name) in seen:
            continue
        seen.add((id(tensor.graph), tensor.name))
        op = tensor.op
        if op.type in _DATA or op.type == "Placeholder":
            outside = _outside(tensor, captures) if op.type == "Placeholder" else []
            if outside:
                to_see += outside
            elif tensor.dtype not in (tf.resource, tf.variant) and captures.of(tensor) is tensor:
                return tensor.shape.rank != 0
        elif op.type == "IdentityN":
            to_see.append(op.inputs[tensor.value_index])
        elif op.type not in CALLS:
            to_see += list(op.inputs)
    return False


def _is_known(tensor: tf.Tensor, shared: SharedTensors) -> bool:
    return tensor in shared or tensor.op.type in _EQUAL


def _outside(tensor: tf.Tensor, captures: Captures) -> list[tf.Tensor]:
    """Returns the symbolic tensor that a placeholder stands for, if there is one."""
    outside = captures.of(tensor)
    return [] if outside is tensor or hasattr(outside, "numpy") or not hasattr(outside, "op") else [outside]
