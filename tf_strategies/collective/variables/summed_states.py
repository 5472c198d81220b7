"""Warns of metrics whose state is no sum.

Each replica has a state of its own, and a read adds up those of all replicas. That is right for sums and counts. A metric that
keeps the largest value of all batches, or the last one, would show a multiple of it.
"""

from __future__ import annotations

import logging
from typing import Any, Callable, Iterable, Optional, Set

import tensorflow as tf

from tf_strategies.collective.variables.written_variables import Write, WrittenVariables
from tf_strategies.types import Result

__all__ = ["SummedStates"]

_log = logging.getLogger("tf_strategies")

_SAME = ("Identity", "Cast", "Reshape", "EnsureShape", "StopGradient", "Squeeze", "ExpandDims")
_SUMS = ("AddV2", "Add", "AddN")
_CHOICES = ("SelectV2", "Select")
_UNKNOWN = ("If", "StatelessIf", "While", "StatelessWhile", "PartitionedCall", "StatefulPartitionedCall")


class SummedStates:
    """Looks at the operations by which a replica function writes the states of metrics.

    Args:
        states: returns the variables that are added up over replicas.
        replicas: returns the number of all replicas.
        is_first: whether this worker is the one that warns.
    """

    def __init__(
        self, *, states: Callable[[], Iterable[tf.Variable]], replicas: Callable[[], int], is_first: bool
    ) -> None:
        self._states, self._replicas, self._is_first = states, replicas, is_first
        self._warned: Set[str] = set()

    def watch(self, fn: Callable[..., Result]) -> Callable[..., Result]:
        """Returns the replica function `fn`, which warns when it is traced. Eagerly there is nothing to look at."""
        if not self._is_first or tf.executing_eagerly():
            return fn

        @tf.autograph.experimental.do_not_convert
        def watched(*args: Any, **kwargs: Any) -> Result:
            written = WrittenVariables()
            result = fn(*args, **kwargs)
            for write in written.writes(self._states()):
                setting = _what_sets(write)
                if setting is not None:
                    self._warn(write.variable, setting)
            return result

        return watched

    def _warn(self, variable: tf.Variable, setting: str) -> None:
        name = variable.name.partition(":")[0]
        if name in self._warned:
            return
        self._warned.add(name)
        _log.warning(
            "A metric sets its variable %r with %s, and does not add to it. Its values on the %d replicas are added up, so the "
            "metric will not be that of one process. Let the metric keep sums and counts, or see docs/losses_and_train_steps.md, "
            "'Metrics that keep no sums'",
            name,
            setting,
            self._replicas(),
        )


def _what_sets(write: Write) -> Optional[str]:
    """Returns the type of the operation that makes the new value of a variable; None if it adds to the old one, or unknown."""
    if write.op.type != "AssignVariableOp":
        return None
    made_by = _without_casts(write.op.inputs[1])
    return None if _adds(made_by, write, set()) else str(made_by.type)


def _adds(op: tf.Operation, write: Write, seen: Set[str]) -> bool:
    """Returns True if the result of an operation is the old value of the variable, or that plus something, or 0."""
    op = _without_casts(op.outputs[0])
    if op.name in seen:
        return False
    seen.add(op.name)
    if write.reads(op) or _is_zero(op):
        return True
    if op.type in _SUMS:
        return any(_adds(each.op, write, seen) for each in op.inputs)
    if op.type == "Sub":
        return _adds(op.inputs[0].op, write, seen)
    if op.type in _CHOICES:
        return all(_adds(each.op, write, seen) for each in op.inputs[1:])
    return op.type in _UNKNOWN


def _is_zero(op: tf.Operation) -> bool:
    if op.type == "ZerosLike":
        return True
    value = tf.get_static_value(op.outputs[0])
    return value is not None and not value.any()


def _without_casts(tensor: tf.Tensor) -> tf.Operation:
    while tensor.op.type in _SAME:
        tensor = tensor.op.inputs[0]
    op: tf.Operation = tensor.op
    return op
