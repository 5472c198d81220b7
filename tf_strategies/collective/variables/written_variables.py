"""Finds the variables that a part of a graph writes, also inside functions that were traced before."""

from __future__ import annotations

from typing import Callable, Iterable, Iterator, List, NamedTuple

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.row_checks.graph_search import Captures

__all__ = ["Write", "WrittenVariables"]


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
