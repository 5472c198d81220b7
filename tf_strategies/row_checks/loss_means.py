"""Finds losses of a `train_step`, and numbers that it returns or gives to metrics, that are no means over rows.

A masked mean divides the sum over the valid rows by their number; the root of a mean square is a root. The mean of such numbers
over replicas is not the number of the joint batch: they are not linear in what is added up over the rows. Nor is it for a loss
that compares rows with each other, such as a contrastive one: a replica has only its own rows.
"""

from __future__ import annotations

import collections
import itertools
import logging
import re
from typing import Callable, Iterator, Optional, Sequence, Set, Tuple

import tensorflow as tf

from tf_strategies.row_checks.graph_search import (
    CALLS,
    MOST_STEPS,
    NOT_LINEAR,
    Captures,
    gives_rows,
)
from tf_strategies.row_checks.row_terms import Kind, kind_of
from tf_strategies.row_checks.shared_tensors import SharedTensors

__all__ = [
    "COMPARED_ROWS",
    "MESSAGE",
    "OF_METRIC",
    "OF_REPLICA",
    "SUM_OF_ROWS",
    "LossMeans",
    "what_is_no_mean",
]

MESSAGE = (
    "%s is no mean over rows: %s %r takes a number that depends on all rows of the replica, such as the number of valid rows "
    "by which a masked mean divides. The values of the %d replicas are averaged, which is not that of one process. Compute "
    "it from all rows, with tfs.joint_rows; see docs/losses_and_train_steps.md, 'Losses that are no means over rows'"
)

COMPARED_ROWS = (
    "%s is no mean over rows: what a row adds to %r depends on the other rows of the batch. It may compare rows or take the "
    "greatest of them, or a layer may. Each replica has only its own rows, and the values of the %d replicas are averaged, which "
    "is not that of one process. Compute it from all rows, with tfs.joint_rows; see docs/losses_and_train_steps.md, 'Losses that "
    "are no means over rows'"
)
SUM_OF_ROWS = (
    "%s is a sum over rows, or takes one: %r changes if a batch has each row twice. The values of the %d replicas are averaged, "
    "so that it is smaller than in one process. Divide it by the rows that the step sees, as tf.reduce_mean does, or make the "
    "strategy with step_losses=\"sum\"; see docs/losses_and_train_steps.md, 'Losses that are no means over rows'"
)
OF_REPLICA = (
    "train_step returns %r, which each of the %d replicas computes from its own rows. Only floating-point scalars are averaged "
    "over all of them; of others, the logs show the value of one worker. Compute it from all rows, with tfs.joint_rows, or do "
    "not return it; see docs/losses_and_train_steps.md, 'Losses that are no means over rows'"
)
OF_METRIC = (
    "%s is given a number for each batch that is no mean over rows (%s), so that the logs show the mean of what the %d replicas "
    "compute from their own rows, which is not that of one process. Give it one number for each row, or compute the number from "
    "all rows, with tfs.joint_rows, or use a Metric class that adds up sums over rows; see docs/losses_and_train_steps.md, "
    "'Losses that are no means over rows'"
)

_MESSAGES = {Kind.COMPARED: COMPARED_ROWS, Kind.SUM: SUM_OF_ROWS}
_LOSS, _NUMBER = "A loss", "A number that train_step returns"
_log = logging.getLogger("tf_strategies")

_OF_REPLICA = re.compile(r"\breplica_\d+/")
_EQUAL = ("Const", "ReadVariableOp", "Rank", "ZerosLike", "OnesLike")
_COUNTS = ("Shape", "ShapeN", "Size")  # proportional to the rows, for which replicas are weighted
_OF_SHAPES = (*_COUNTS, "Pack", "Prod", "Range", "Reshape", "StridedSlice")
_DIVISIONS = ("RealDiv", "Div", "DivNoNan")
_NEAR = 10  # the operations between a mean and a mask
_PRODUCTS = ("Mul", "MulNoNan")


class LossMeans:
    """Warns, once for each operation, of losses that are no means over rows.

    Args:
        shared: the tensors that have the rows of all replicas.
        replicas: returns the number of all replicas.
        is_first: returns whether this worker is the one that warns.
        advice: a sentence that ends each warning.
    """

    def __init__(
        self,
        *,
        shared: SharedTensors,
        replicas: Callable[[], int],
        is_first: Callable[[], bool],
        advice: str = "",
    ) -> None:
        self._shared, self._replicas, self._is_first = shared, replicas, is_first
        self._advice = f". {advice}" if advice else ""
        self._warned: Set[str] = set()
        self._computed: Set[Tuple[str, int]] = set()
        self._warned_by_key: Set[Tuple[str, int]] = set()
        self._in_warned: Set[str] = set()
        self._of_metrics: Set[str] = set()

    def look_at(self, loss: tf.Tensor, *, may_compare_rows: Callable[[], bool] = lambda: False) -> None:
        """Looks at the operations by which a loss is computed. An eager loss has none.

        Args:
            loss: the loss of a replica.
            may_compare_rows: returns whether code of the user computes it. Then it is also computed, for rows at random.
        """
        if self._can_look_at(loss):
            self._look_at(loss, _LOSS, may_compare_rows)

    def look_at_log(self, value: tf.Tensor, *, may_compare_rows: Callable[[], bool]) -> None:
        """Looks at a number that a step returns, if code of the user may compute it; arguments as for `look_at`."""
        if not self._can_look_at(value) or _OF_REPLICA.match(value.op.name) or not may_compare_rows():
            return
        if self._takes_one_of(self._in_warned | self._of_metrics, value):
            return  # one warning is enough
        if value.dtype.is_floating and value.shape.rank == 0:
            self._look_at(value, _NUMBER, may_compare_rows)
            return
        if _depends_on_rows(value, self._shared, Captures(), _EQUAL):
            self._in_warned.add(value.op.name)
            self._warn(OF_REPLICA, value.op.name)

    def look_at_metric(self, name: str, value: tf.Tensor) -> None:
        """Looks at a scalar of which a metric takes the mean over batches; call it after the losses have been looked at.

        Args:
            name: the name of the metric, of which one warning is given.
            value: the scalar.
        """
        what = f"Metric {name!r}"
        if not self._can_look_at(value) or _OF_REPLICA.match(value.op.name) or what in self._warned:
            return
        if self._takes_one_of(self._in_warned, value):
            return
        found = what_is_no_mean(value, self._shared)
        if found is None:
            kind = self._new_kind_of(value)
            why = kind.value if kind in _MESSAGES else ""
        else:
            why = f"{found.type} {found.name!r} takes one that depends on all rows"
        if why:
            self._warned.add(what)
            self._of_metrics.add(value.op.name)
            self._warn(OF_METRIC, what, why)

    def _can_look_at(self, value: tf.Tensor) -> bool:
        return self._replicas() > 1 and self._is_first() and not hasattr(value, "numpy")

    def _look_at(self, loss: tf.Tensor, what: str, may_compare_rows: Callable[[], bool]) -> None:
        found = what_is_no_mean(loss, self._shared)
        name = "" if found is None else _OF_REPLICA.sub("", found.name)
        if found is not None and name not in self._warned:
            self._warned.add(name)
            self._note(loss)
            self._warn(MESSAGE, what, found.type, found.name)
        if found is None and not _OF_REPLICA.match(loss.op.name) and may_compare_rows():
            self._compute(loss, what)

    def _compute(self, loss: tf.Tensor, what: str) -> None:
        message = _MESSAGES.get(self._new_kind_of(loss))
        if message is None:
            return
        self._note(loss)
        key = self._key(loss, _OF_SHAPES)
        if key not in self._warned_by_key:  # another trace may know other shapes
            self._warned_by_key.add(key)
            self._warn(message, what, loss.op.name)

    def _warn(self, message: str, *of_number: str) -> None:
        _log.warning(f"{message}%s", *of_number, self._replicas(), self._advice)

    def _new_kind_of(self, value: tf.Tensor) -> Optional[Kind]:
        """Returns what a loss or number makes of rows; None if it cannot be told, or has been computed before."""
        key = self._key(value)
        if key in self._computed:
            return None
        self._computed.add(key)
        return kind_of(value, self._shared)

    def _key(self, value: tf.Tensor, left_out: Sequence[str] = ()) -> Tuple[str, int]:
        """Returns what tells a number from others: its name, which another model may use, and how it is computed."""
        types = [op.type for op in _operations(value, self._shared, Captures()) if op.type not in left_out]
        return value.op.name, hash(tuple(sorted(types) if left_out else types))

    def _takes_one_of(self, names: Set[str], value: tf.Tensor) -> bool:
        """Returns True for a number that is computed from a scalar of one of these names."""
        operations = _operations(value, self._shared, Captures())
        return not names.isdisjoint(op.name for op in operations if op.outputs[0].shape.rank == 0)

    def _note(self, loss: tf.Tensor) -> None:
        """Remembers the numbers that a loss is computed from, for which its warning is enough."""
        self._in_warned.update(op.name for op in _operations(loss, self._shared, Captures()))


def what_is_no_mean(loss: tf.Tensor, shared: SharedTensors) -> Optional[tf.Operation]:
    """Returns an operation of a loss that is not linear in a scalar which is computed from the rows; None if there is none."""
    captures = Captures()
    for op in _operations(loss, shared, captures):
        if op.type == "Mean" and op.outputs[0].shape.rank == 0 and _is_over_chosen_rows(op, shared, captures):
            return op
        if op.type in _DIVISIONS:
            operands = op.inputs[1:]
        elif op.type in (*_PRODUCTS, *NOT_LINEAR):
            operands = op.inputs
        else:
            continue
        by_rows = [
            each for each in operands if each.shape.rank == 0 and _depends_on_rows(each, shared, captures)
        ]
        if len(by_rows) > (1 if op.type in _PRODUCTS else 0):
            return op
    return None


def _is_over_chosen_rows(mean: tf.Operation, shared: SharedTensors, captures: Captures) -> bool:
    """Returns True for a mean over what `tf.boolean_mask` has chosen."""
    near = itertools.islice(_operations(mean.inputs[0], shared, captures), _NEAR)
    gathers = [op for op in near if op.type in ("GatherV2", "GatherNd")]
    return any(
        op.type == "Where"
        for gather in gathers
        for op in itertools.islice(_operations(gather.inputs[1], shared, captures), _NEAR)
    )


def _depends_on_rows(
    value: tf.Tensor, shared: SharedTensors, captures: Captures, equal: Sequence[str] = (*_EQUAL, *_COUNTS)
) -> bool:
    return any(
        gives_rows(op) or (op.type == "Placeholder" and _has_rows(op.outputs[0]))
        for op in _operations(value, shared, captures, equal)
    )


def _operations(
    value: tf.Tensor, shared: SharedTensors, captures: Captures, equal: Sequence[str] = (*_EQUAL, *_COUNTS)
) -> Iterator[tf.Operation]:
    """Yields the operations by which a value is computed, without those of types that are `equal` on all replicas.

    A placeholder is yielded if nothing is known of what it stands for.
    """
    to_see, seen = collections.deque([value]), set()
    while to_see and len(seen) < MOST_STEPS:
        tensor = to_see.popleft()
        op = tensor.op
        if tensor in shared or op.type in equal or (id(op.graph), tensor.name) in seen:
            continue
        seen.add((id(op.graph), tensor.name))
        if op.type == "Placeholder":
            outside = captures.of(tensor)
            if outside is tensor:
                yield op
            elif hasattr(outside, "op") and not hasattr(outside, "numpy"):
                to_see.append(outside)
            continue
        yield op
        to_see += _inputs(tensor)


def _inputs(tensor: tf.Tensor) -> Sequence[tf.Tensor]:
    if tensor.op.type in CALLS or gives_rows(tensor.op):
        return ()
    return [tensor.op.inputs[tensor.value_index]] if tensor.op.type == "IdentityN" else list(tensor.op.inputs)


def _has_rows(tensor: tf.Tensor) -> bool:
    return tensor.dtype not in (tf.resource, tf.variant) and tensor.shape.rank != 0
