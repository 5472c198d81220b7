"""Operations with side effects, in the order in which they were made, also in a graph that a session runs."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import tensorflow as tf

from tf_strategies.session_graphs.coordinator import in_session_graph

__all__ = ["in_program_order"]


def in_program_order(function: Callable[[Sequence[Any]], Any], values: Sequence[Any]) -> Any:
    """Returns `function(values)`, with all operations that have side effects run one after the other.

    Eager code and functions do so anyway. A session runs what its fetches need, in any order; there it becomes a function.

    Args:
        function: of tensors and IndexedSlices; returns a structure of them.
        values: its argument.
    """
    if not in_session_graph():
        return function(values)
    return tf.function(function, autograph=False)(list(values))
