"""Finds the variables that a part of a graph writes, also inside functions that were traced before."""

from __future__ import annotations

from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple

import tensorflow as tf

from tf_strategies._tf import compat

__all__ = ["CALLS", "MOST_STEPS", "NOT_LINEAR", "Captures", "Write", "WrittenVariables", "gives_rows"]

CALLS = (
    "Case", "StatelessCase", "If", "StatelessIf", "While", "StatelessWhile", "Merge",
    "PartitionedCall", "StatefulPartitionedCall",
)  # fmt: skip
"""Operations that call functions, into which those who look at a write do not look."""

MOST_STEPS = 1000
"""The most tensors that they look at. What a larger part of the graph computes is unknown."""


NOT_LINEAR = (
    "Sqrt", "Rsqrt", "Square", "Pow", "Log", "Log1p", "Exp", "Expm1", "Sigmoid", "Softplus", "Tanh", "Relu", "Abs",
    "Maximum", "Minimum", "Reciprocal", "Inv", "SquaredDifference",
)  # fmt: skip
"""Operations after which a mean over the rows of a replica is none over the joint batch, when replicas are averaged."""

_DATA = ("IteratorGetNext", "OptionalGetValue", "IteratorGetNextAsOptional")
_BRANCHES = ("If", "StatelessIf")


def gives_rows(op: tf.Operation) -> bool:
    """Returns True for an operation that gives the rows of a batch.

    Where a batch may be smaller than others, Keras 2 takes the rows of a replica from a branch: it may have none.
    """
    return op.type in _DATA or (op.type in _BRANCHES and any(each.op.type in _DATA for each in op.inputs))


class Write(NamedTuple):
    """An operation that writes a variable.

    Attributes:
        variable: the mirrored variable.
        op: the operation, which may call a function that writes it.
        reads: returns True for an operation that reads the same variable.
        outside: returns the tensor outside of all functions that a tensor inside has captured, or the same one.
    """

    variable: tf.Variable
    op: tf.Operation
    reads: Callable[[tf.Operation], bool]
    outside: Callable[[tf.Tensor], tf.Tensor]


class WrittenVariables:
    """Finds the variables that operations write which are added to the current graph from now on.

    A function that a replica calls may have been traced before, or come from a SavedModel. Then no Python
    code runs that could report its assignments.
    """

    def __init__(self) -> None:
        self._graph = tf.compat.v1.get_default_graph()
        self._count = len(self._graph.get_operations())

    def among(self, variables: Iterable[tf.Variable]) -> List[tf.Variable]:
        """Returns the mirrored `variables` that are written on any replica, in the order of the first write."""
        written = {id(each.variable): each.variable for each in self.writes(variables)}
        return list(written.values())

    def writes(self, variables: Iterable[tf.Variable]) -> Iterator[Write]:
        """Yields the operations that write one of the mirrored `variables` on any replica, in their order."""
        variables = list(variables)
        owners = {id(part.handle): variable for variable in variables for part in variable.values}
        initializers = {id(part.initializer) for variable in variables for part in variable.values}
        outside = Captures()

        def reads(handle: tf.Tensor) -> Callable[[tf.Operation], bool]:
            return lambda op: op.type == "ReadVariableOp" and outside.of(op.inputs[0]) is handle

        for op in self._graph.get_operations()[self._count :]:
            if id(op) in initializers or not any(tensor.dtype == tf.resource for tensor in op.inputs):
                continue
            for tensor in compat.written_resources(op):
                handle = outside.of(tensor)
                if id(handle) in owners:
                    yield Write(owners[id(handle)], op, reads(handle), outside.of)


class Captures:
    """Maps tensors inside functions to those outside of all functions."""

    def __init__(self) -> None:
        self._of_graph: Dict[int, Dict[int, tf.Tensor]] = {}

    def of(self, tensor: tf.Tensor) -> tf.Tensor:
        graph = getattr(tensor, "graph", None)
        while hasattr(graph, "captures"):
            if id(graph) not in self._of_graph:
                self._of_graph[id(graph)] = {id(inside): outside for outside, inside in graph.captures}
            if id(tensor) not in self._of_graph[id(graph)]:
                break
            tensor = self._of_graph[id(graph)][id(tensor)]
            graph = getattr(tensor, "graph", None)
        return tensor
