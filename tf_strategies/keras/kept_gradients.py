"""Finds gradients that a step of the user's own keeps in variables on servers, and divides or clips before it applies them."""

from __future__ import annotations

import weakref
from typing import Dict, Iterator, Protocol, Tuple

import tensorflow as tf

__all__ = ["Keeps", "kept_in", "note_read"]

_MOST_TENSORS = 1000


class Keeps(Protocol):
    """A variable on servers.

    Attributes:
        is_added_to: whether steps add to it.
    """

    is_added_to: bool


_reads: weakref.WeakKeyDictionary[tf.Graph, Dict[str, weakref.ref[Keeps]]] = weakref.WeakKeyDictionary()


def note_read(value: tf.Tensor, variable: Keeps) -> None:
    """Notes that a tensor of a graph is the value of a variable."""
    if not tf.executing_eagerly():
        _reads.setdefault(value.graph, {})[value.name] = weakref.ref(variable)


def kept_in(value: tf.Tensor) -> Iterator[Keeps]:
    """Yields the variables from which a value is computed element by element, such as a sum of gradients that is divided.

    Eager values yield none.
    """
    to_see, seen = [value], set[Tuple[int, str]]()
    captures: Dict[int, Dict[str, tf.Tensor]] = {}
    while to_see and len(seen) < _MOST_TENSORS:
        tensor = to_see.pop()
        if hasattr(tensor, "numpy") or (id(tensor.graph), tensor.name) in seen:
            continue
        seen.add((id(tensor.graph), tensor.name))
        read = _reads.get(tensor.graph, {}).get(tensor.name)
        variable = None if read is None else read()
        if variable is not None:
            yield variable
            continue
        to_see += [each for each in _sources(tensor, captures) if each.shape == value.shape]


def _sources(tensor: tf.Tensor, captures: Dict[int, Dict[str, tf.Tensor]]) -> Iterator[tf.Tensor]:
    op, graph = tensor.op, tensor.graph
    if op.type == "Placeholder" and hasattr(graph, "captures"):
        if id(graph) not in captures:
            captures[id(graph)] = {inside.name: outside for outside, inside in graph.captures}
        if tensor.name in captures[id(graph)]:
            yield captures[id(graph)][tensor.name]
    elif op.type == "IdentityN":
        yield op.inputs[tensor.value_index]
    else:
        yield from op.inputs
