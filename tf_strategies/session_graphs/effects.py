"""Collects the side effects of a step, because a session runs only the operations that it fetches."""

from __future__ import annotations

import contextlib
from typing import Iterator, List, Sequence, Set

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.types import Fetch, Structure

__all__ = ["led_to", "taking_effect", "with_effects"]


@contextlib.contextmanager
def taking_effect() -> Iterator[List[tf.Operation]]:
    """Yields a list.

    At the end it contains the operations with side effects that were built in the current session graph.

    Operations with side effects in a branch run with the branch, in order.
    """
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    built: List[tf.Operation] = []
    with compat.orderly_branches():
        yield built
    built += [op for op in graph.get_operations()[before:] if op.op_def.is_stateful]


def led_to(result: Structure) -> Set[tf.Operation]:
    """Returns the operations that a session runs when it trains with the result of a replica function."""
    if hasattr(result, "train_op") and hasattr(result, "_replace"):
        result = result.train_op
    waiting = [value if isinstance(value, tf.Operation) else value.op for value in _of_graph(result)]
    found: Set[tf.Operation] = set()
    while waiting:
        op = waiting.pop()
        if op not in found:
            found.add(op)
            waiting += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return found


def with_effects(result: Structure, effects: Sequence[tf.Operation]) -> Structure:
    """Returns the result of a replica function, changed so that a session that trains with it also runs these operations.

    Args:
        result: a tf.estimator.EstimatorSpec, whose `train_op` will wait for the operations; or any structure,
            all tensors of which will.
        effects: the operations, of the same graph.
    """
    if not effects:
        return result
    if hasattr(result, "train_op") and hasattr(result, "_replace"):
        train_op = result.train_op
        return result if train_op is None else result._replace(train_op=tf.group(train_op, *effects))
    with tf.control_dependencies(effects):
        return tf.nest.map_structure(_again, result)


def _again(value: object) -> object:
    if isinstance(value, tf.Operation):
        return tf.group(value)
    return tf.identity(value) if isinstance(value, (tf.Tensor, tf.Variable)) else value


def _of_graph(result: Structure) -> List[Fetch]:
    kinds = (tf.Operation, tf.Tensor, tf.Variable)
    return [value for value in tf.nest.flatten(result, expand_composites=True) if isinstance(value, kinds)]
