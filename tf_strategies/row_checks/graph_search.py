"""Knows what those who search a graph for the rows of a batch have to know of its operations."""

from __future__ import annotations

from typing import Dict

import tensorflow as tf

__all__ = ["CALLS", "MOST_STEPS", "NOT_LINEAR", "Captures", "gives_rows"]

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
