"""Finds gradients that a step of the user's own keeps in variables on servers, and divides or clips before it applies them."""

from __future__ import annotations

import weakref
from typing import Dict, Iterator, Protocol, Tuple

import tensorflow as tf

from tf_strategies.keras.graph_inputs import GraphInputs

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
    inputs = GraphInputs()
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
        to_see += [each for each in inputs.of(tensor) if each.shape == value.shape]
