"""Runs operations with side effects in the order of the program, also in a graph that a session runs."""

from __future__ import annotations

from typing import Callable, Sequence

import tensorflow as tf

from tf_strategies.session_graphs.coordinator import in_session_graph
from tf_strategies.types import Result, TensorOrSlices

__all__ = ["in_program_order"]


def in_program_order(
    function: Callable[[Sequence[TensorOrSlices]], Result], values: Sequence[TensorOrSlices]
) -> Result:
    """Returns `function(values)`. All its operations with side effects run in order.

    Eager code and functions always do so. A session runs the operations that its fetches need in any order;
    there, `function` is turned into a tf.function.

    Args:
        function: takes and returns a structure of tensors and IndexedSlices.
        values: the argument of `function`.
    """
    if not in_session_graph():
        return function(values)
    return tf.function(function, autograph=False)(list(values))
