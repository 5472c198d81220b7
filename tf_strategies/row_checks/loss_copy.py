"""Copies the operations by which a loss is computed from the graph of a step."""

from __future__ import annotations

import zlib
from typing import Dict, List, Sequence, Set, Tuple, Union

import numpy as np
import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.row_checks.graph_search import CALLS, Captures, gives_rows
from tf_strategies.row_checks.shared_tensors import SharedTensors

__all__ = ["LossCopy", "UnknownError"]

_MOST_OPERATIONS = 20_000
_MOST_WEIGHTS, _SPREAD = 50_000_000, 0.3
_OWN_OPERATIONS = "TfStrategies>"
_NOT_COPIED = (
    "Collective", "Nccl", "PyFunc", "EagerPyFunc", "PyFuncStateless", "RandomShuffle", "Xla",
    "Print", "LogMatrix", "Write",
)  # fmt: skip
_RANDOM = (
    "RandomUniform", "RandomStandardNormal", "TruncatedNormal",
    "StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal",
)  # fmt: skip
_NORMALIZATIONS = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")

_Key = Tuple[int, str]


class UnknownError(Exception):
    """The loss cannot be computed by itself."""


class LossCopy:
    """Copies the operations of a loss into other graphs, without side effects.

    Random operations become constants, and so do the statistics of a batch normalization and the tensors that all replicas share.
    Values of variables that come from servers become numbers at random.

    Args:
        loss: the loss, a tensor of a graph that is being built.
        shared: the tensors that have the rows of all replicas.

    Raises:
        UnknownError: if some of the operations cannot be copied.

    Attributes:
        has_half_precision: whether some of them compute in half precision.
        draws: whether some of them draw random numbers, as many as there are rows.
    """

    def __init__(self, loss: tf.Tensor, shared: SharedTensors) -> None:
        self.has_half_precision = self.draws = False
        self._loss, self._shared = loss, shared
        self._captures = Captures()
        self._libraries: Dict[int, Dict[str, tf.compat.v1.GraphDef]] = {}
        self._rows: Dict[_Key, tf.Tensor] = {}
        self._in_order: List[tf.Operation] = []
        self._of_columns = self._means_in_loss()
        self._walk()

    @property
    def rows(self) -> Sequence[tf.Tensor]:
        """The tensors of the batch from which the loss is computed."""
        return list(self._rows.values())

    def compute(self, *rows: tf.Tensor) -> tf.Tensor:
        """Returns the loss of a batch, [] float64, added up if it has several elements. Adds its operations to the current graph.

        Args:
            *rows: values for `self.rows`.
        """
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
            if op.type == "Placeholder" or gives_rows(op):
                self._rows.setdefault((id(op.graph), tensor.name), tensor)
            elif _key(op) not in seen:
                seen.add(_key(op))
                self._check(op)
                to_see += [op, *self._inputs(op)]
            if len(seen) > _MOST_OPERATIONS:
                raise UnknownError("too many operations")

    def _means_in_loss(self) -> Set[_Key]:
        """Returns the means over rows that the loss takes as they are, and not to normalize rows."""
        found: Set[_Key] = set()
        seen: Set[_Key] = set()
        to_see = [self._loss]
        while to_see:
            tensor = self._outside(to_see.pop())
            if hasattr(tensor, "numpy") or self._is_shared(tensor) or _has_rows(tensor):
                continue
            op = tensor.op
            if gives_rows(op) or (
                op.type == "Placeholder" and tensor.dtype != tf.resource and tensor.shape.rank
            ):
                return set()  # with a fixed number of rows no shape tells what has rows
            if _key(op) not in seen:
                seen.add(_key(op))
                if _is_mean_over_rows(op):
                    found.add(_key(op))
                else:
                    to_see += op.inputs
        return found

    def _outside(self, tensor: tf.Tensor) -> tf.Tensor:
        return tensor if self._is_shared(tensor) else self._captures.of(tensor)

    def _is_shared(self, tensor: tf.Tensor) -> bool:
        if tensor not in self._shared:
            return False
        if not tensor.shape.is_fully_defined():
            raise UnknownError("rows of all replicas")
        return True

    def _inputs(self, op: tf.Operation) -> Sequence[tf.Tensor]:
        return () if self._is_constant(op) else op.inputs

    def _is_constant(self, op: tf.Operation) -> bool:
        """Returns True for a mean of each column by which rows are normalized."""
        return _is_mean_over_rows(op) and _key(op) not in self._of_columns

    def _made(self, tensor: tf.Tensor, made: Dict[_Key, List[tf.Tensor]]) -> tf.Tensor:
        tensor = self._outside(tensor)
        if hasattr(tensor, "numpy"):
            return tensor
        if self._is_shared(tensor):
            return _weights(tensor) if self._shared.is_value(tensor) else _constant(tensor)
        key = id(tensor.op.graph), tensor.name
        return made[key][0] if key in made else made[_key(tensor.op)][tensor.value_index]

    def _copied(self, op: tf.Operation, inputs: List[tf.Tensor]) -> List[tf.Tensor]:
        attributes = {
            name: value
            for name, value in op.node_def.attr.items()
            if name not in ("_class", "_output_shapes")
        }
        if self._is_constant(op):
            return [_constant(op.outputs[0])]
        if op.type.startswith(_RANDOM):
            half = tf.constant(0.5 if op.outputs[0].dtype.is_floating else 0, op.outputs[0].dtype)
            return [tf.fill(inputs[0], half)]
        if op.type in _NORMALIZATIONS and attributes["is_training"].b:
            attributes["is_training"] = tf.compat.v1.AttrValue(b=False)
            inputs = [*inputs[:3], tf.zeros_like(inputs[1]), tf.ones_like(inputs[1])]
        graph = tf.compat.v1.get_default_graph()
        dtypes = [each.dtype for each in op.outputs]
        return list(graph.create_op(op.type, inputs, dtypes, attrs=attributes, op_def=op.op_def).outputs)

    def _check(self, op: tf.Operation) -> None:
        """Raises UnknownError for an operation that talks to others, calls Python or writes a variable."""
        if op.type.startswith((_OWN_OPERATIONS, *_NOT_COPIED)) or compat.written_resources(op):
            raise UnknownError(op.type)
        if op.type in CALLS:
            self._check_functions(op)
        elif _draws(op.type) and not op.type.startswith(_RANDOM):
            self.draws = True
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
            if name in seen:
                continue
            if name not in functions:
                raise UnknownError(name)
            seen.add(name)
            for node in functions[name].node_def:
                if node.op.startswith((_OWN_OPERATIONS, *_NOT_COPIED)):
                    raise UnknownError(node.op)
                self.draws = self.draws or _draws(node.op)
                to_see += _functions_of(node)


def _draws(operation: str) -> bool:
    return "Random" in operation or "Multinomial" in operation or "TruncatedNormal" in operation


def _key(op: tf.Operation) -> _Key:
    return id(op.graph), op.name


def _functions_of(node: tf.compat.v1.NodeDef) -> List[str]:
    single = [value.func.name for value in node.attr.values() if value.HasField("func")]
    return single + [each.name for value in node.attr.values() for each in value.list.func]


def _constant(tensor: tf.Tensor) -> tf.Tensor:
    """Returns a constant of the shape and the dtype of a tensor."""
    return tf.cast(tf.fill(tensor.shape, 0.5 if tensor.dtype.is_floating else 1.0), tensor.dtype)


def _weights(value: tf.Tensor) -> tf.Tensor:
    """Returns numbers in place of the value of a variable: always the same, and not equal to each other."""
    if not value.dtype.is_floating:
        return _constant(value)
    if value.shape.num_elements() > _MOST_WEIGHTS:
        raise UnknownError("a large variable")
    seed = [zlib.crc32(value.name.encode()) % (1 << 31), 0]
    return tf.cast(tf.random.stateless_normal(value.shape, seed, stddev=_SPREAD), value.dtype)


def _has_rows(tensor: tf.Tensor) -> bool:
    """Returns True for a tensor of as many rows as the batch, if the graph leaves that number open."""
    return tensor.shape.rank is None or (tensor.shape.rank > 0 and tensor.shape[0] is None)


def _is_mean_over_rows(op: tf.Operation) -> bool:
    """Returns True for a mean of each column."""
    if op.type != "Mean" or not op.outputs[0].shape.rank or not op.outputs[0].shape.is_fully_defined():
        return False
    axes = tf.get_static_value(op.inputs[1])
    return axes is not None and 0 in np.ravel(axes) and op.inputs[0].shape.rank > 1
