"""Finds out by computing whether a loss is a sum of terms that each depend on one row.

A mean over rows is such a sum, and then two batches [A; B] and [C; D] of the same size can exchange rows:
loss([A; B]) + loss([C; D]) = loss([A; D]) + loss([C; B]). A loss that compares rows with each other, such as a contrastive one,
is none, nor is one that picks the hardest rows or divides by a number of valid ones. The operations of a loss are copied from
the graph of the step, without side effects, and computed for rows at random.
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Set, Tuple, Union

import numpy as np
import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.collective.variables.averaged_states import SharedTensors
from tf_strategies.collective.variables.written_variables import CALLS, DATA, Captures

__all__ = ["are_independent"]

_MOST_OPERATIONS = 20_000
_ROWS, _SIZE = 6, 4  # of a batch, and of another dimension, where the graph leaves it open
_TRIALS = 3  # the greatest rows, for instance, may be in one half by chance
_MANY_ROWS = 16  # of which one trial is enough
_TOLERANCE, _TOLERANCE_OF_HALF = 1e-4, 2e-2
_OWN_OPERATIONS = "TfStrategies>"
_NOT_COPIED = ("Collective", "Nccl", "PyFunc", "EagerPyFunc", "PyFuncStateless", "RandomShuffle", "Xla")
_RANDOM = ("RandomUniform", "RandomStandardNormal", "TruncatedNormal", "RandomUniformInt")
_NORMALIZATIONS = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")

_Key = Tuple[int, str]


class _UnknownError(Exception):
    """The loss cannot be computed by itself."""


def are_independent(loss: tf.Tensor, shared: SharedTensors) -> Optional[bool]:
    """Returns whether each row of a batch adds the same to a loss whatever the other rows are; None if it cannot be told.

    Random operations that would draw anew each time are replaced by a constant, and so are the statistics of a batch
    normalization and the tensors that all replicas share.

    Args:
        loss: the loss, a tensor of a graph that is being built. It is added up if it has several elements.
        shared: the tensors that have the rows of all replicas.
    """
    try:
        copy = _Copy(loss, shared)
        random = np.random.default_rng(0)
        with tf.init_scope(), tf.device(None):
            compute = tf.function(copy.compute, autograph=False)
            trials = [
                [float(compute(*map(tf.constant, batch))) for batch in copy.batches(random)]
                for _ in range(_TRIALS if copy.count() < _MANY_ROWS else 1)
            ]
    except (_UnknownError, tf.errors.OpError, TypeError, ValueError):
        return None
    tolerance = _TOLERANCE_OF_HALF if copy.has_half_precision else _TOLERANCE
    found = [_is_sum(*values, tolerance=tolerance) for values in trials]
    return None if None in found else all(found)


def _is_sum(
    first: float, again: float, second: float, left: float, right: float, *, tolerance: float
) -> Optional[bool]:
    scale = max(map(abs, (first, second, left, right)))
    if not np.isfinite(scale) or abs(first - again) > 1e-6 * scale:
        return None
    return abs(first + second - left - right) <= tolerance * scale


class _Copy:
    """Copies the operations of a loss into other graphs.

    Raises:
        _UnknownError: if some of them cannot be copied.
    """

    def __init__(self, loss: tf.Tensor, shared: SharedTensors) -> None:
        self.has_half_precision = False
        self._loss, self._shared = loss, shared
        self._captures = Captures()
        self._libraries: Dict[int, Dict[str, tf.compat.v1.GraphDef]] = {}
        self._rows: Dict[_Key, tf.Tensor] = {}
        self._in_order: List[tf.Operation] = []
        self._walk()

    def count(self) -> int:
        """Returns the number of rows of a batch.

        Raises:
            _UnknownError: if the tensors have several numbers of rows, or one row.
        """
        sizes = {each.shape[0] for each in self._rows.values() if each.shape.rank} - {None}
        if len(sizes) > 1 or 1 in sizes:
            raise _UnknownError("numbers of rows")
        return next(iter(sizes), _ROWS)

    def batches(self, random: np.random.Generator) -> List[List[np.ndarray]]:
        """Returns [A; B] twice, [C; D], [A; D] and [C; B]: for each tensor of rows its values.

        Raises:
            _UnknownError: if the tensors have several numbers of rows, or one row, or an unknown rank.
        """
        rows = self.count()
        first, second, left, right = [], [], [], []
        for each in self._rows.values():
            some, others = _values_like(each, rows, random), _values_like(each, rows, random)
            half = rows // 2
            first.append(some)
            second.append(others if some.ndim else some)
            left.append(np.concatenate([some[:half], others[half:]]) if some.ndim else some)
            right.append(np.concatenate([others[:half], some[half:]]) if some.ndim else some)
        return [first, first, second, left, right]

    def compute(self, *rows: tf.Tensor) -> tf.Tensor:
        """Returns the loss of rows, [] float64. Adds its operations to the current graph."""
        made = {key: [each] for key, each in zip(self._rows, rows)}
        for op in self._in_order:
            made[_key(op)] = self._copied(op, [self._made(each, made) for each in self._inputs(op)])
        return tf.reduce_sum(tf.cast(self._made(self._loss, made), tf.float64))

    def _walk(self) -> None:
        """Lists the operations, each after its inputs."""
        seen: Set[_Key] = set()
        to_see: List[Union[tf.Tensor, tf.Operation]] = [self._loss]
        while to_see:
            each = to_see.pop()
            if isinstance(each, tf.Operation):
                self._in_order.append(each)
                continue
            tensor = self._outside(each)
            if hasattr(tensor, "numpy") or self._is_shared(tensor):
                continue
            op = tensor.op
            if op.type == "Placeholder" or op.type in DATA:
                self._rows.setdefault((id(op.graph), tensor.name), tensor)
            elif _key(op) not in seen:
                seen.add(_key(op))
                self._check(op)
                to_see += [op, *self._inputs(op)]
            if len(seen) > _MOST_OPERATIONS:
                raise _UnknownError("too many operations")

    def _outside(self, tensor: tf.Tensor) -> tf.Tensor:
        return tensor if self._is_shared(tensor) else self._captures.of(tensor)

    def _is_shared(self, tensor: tf.Tensor) -> bool:
        if tensor not in self._shared:
            return False
        if not tensor.shape.is_fully_defined():
            raise _UnknownError("rows of all replicas")
        return True

    def _inputs(self, op: tf.Operation) -> Sequence[tf.Tensor]:
        return () if _is_mean_over_rows(op) else op.inputs

    def _made(self, tensor: tf.Tensor, made: Dict[_Key, List[tf.Tensor]]) -> tf.Tensor:
        tensor = self._outside(tensor)
        if hasattr(tensor, "numpy"):
            return tensor
        if self._is_shared(tensor):
            return _constant(tensor)
        key = id(tensor.op.graph), tensor.name
        return made[key][0] if key in made else made[_key(tensor.op)][tensor.value_index]

    def _copied(self, op: tf.Operation, inputs: List[tf.Tensor]) -> List[tf.Tensor]:
        attributes = {
            name: value
            for name, value in op.node_def.attr.items()
            if name not in ("_class", "_output_shapes")
        }
        if _is_mean_over_rows(op):
            return [_constant(op.outputs[0])]
        if op.type in _RANDOM:
            half = tf.constant(0.5 if op.outputs[0].dtype.is_floating else 0, op.outputs[0].dtype)
            return [tf.fill(inputs[0], half)]
        if op.type in _NORMALIZATIONS and attributes["is_training"].b:
            attributes["is_training"] = tf.compat.v1.AttrValue(b=False)
            inputs = [*inputs[:3], tf.zeros_like(inputs[1]), tf.ones_like(inputs[1])]
        graph = tf.compat.v1.get_default_graph()
        dtypes = [each.dtype for each in op.outputs]
        return list(graph.create_op(op.type, inputs, dtypes, attrs=attributes, op_def=op.op_def).outputs)

    def _check(self, op: tf.Operation) -> None:
        """Raises _UnknownError for an operation that talks to others, calls Python or writes a variable."""
        if op.type.startswith((_OWN_OPERATIONS, *_NOT_COPIED)) or compat.written_resources(op):
            raise _UnknownError(op.type)
        if op.type in CALLS:
            self._check_functions(op)
        if any(each.dtype in (tf.float16, tf.bfloat16) for each in op.outputs):
            self.has_half_precision = True

    def _check_functions(self, op: tf.Operation) -> None:
        if id(op.graph) not in self._libraries:
            library = op.graph.as_graph_def().library
            self._libraries[id(op.graph)] = {each.signature.name: each for each in library.function}
        functions = self._libraries[id(op.graph)]
        to_see, seen = list(_functions_of(op.node_def)), set()
        while to_see:
            name = to_see.pop()
            if name in seen or name not in functions:
                continue
            seen.add(name)
            for node in functions[name].node_def:
                if node.op.startswith((_OWN_OPERATIONS, *_NOT_COPIED)):
                    raise _UnknownError(node.op)
                to_see += _functions_of(node)


def _key(op: tf.Operation) -> _Key:
    return id(op.graph), op.name


def _functions_of(node: tf.compat.v1.NodeDef) -> List[str]:
    single = [value.func.name for value in node.attr.values() if value.HasField("func")]
    return single + [each.name for value in node.attr.values() for each in value.list.func]


def _constant(tensor: tf.Tensor) -> tf.Tensor:
    """Returns a constant of the shape and the dtype of a tensor."""
    return tf.cast(tf.fill(tensor.shape, 0.5 if tensor.dtype.is_floating else 1.0), tensor.dtype)


def _is_mean_over_rows(op: tf.Operation) -> bool:
    """Returns True for a mean of each column, as a batch normalization takes it."""
    if op.type != "Mean" or not op.outputs[0].shape.rank or not op.outputs[0].shape.is_fully_defined():
        return False
    axes = tf.get_static_value(op.inputs[1])
    return axes is not None and 0 in np.ravel(axes) and op.inputs[0].shape.rank > 1


def _values_like(rows: tf.Tensor, count: int, random: np.random.Generator) -> np.ndarray:
    """Returns values at random. Integers are 0 or 1, which are valid as labels and as rows of tables."""
    if rows.shape.rank is None:
        raise _UnknownError("rank")
    shape = [_SIZE if each is None else each for each in rows.shape]
    if shape:
        shape[0] = count
    if rows.dtype == tf.bool or rows.dtype.is_integer:
        return np.asarray(random.integers(0, 2, shape)).astype(rows.dtype.as_numpy_dtype)
    if not rows.dtype.is_floating:
        raise _UnknownError(rows.dtype.name)
    return np.asarray(random.standard_normal(shape)).astype(rows.dtype.as_numpy_dtype)
