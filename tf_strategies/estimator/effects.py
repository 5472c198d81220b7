"""What a step does beyond its results: in a graph that a session runs, only what is asked for runs."""

from __future__ import annotations

from typing import Any, List, Sequence, Set

import tensorflow as tf

__all__ = ["led_to", "new_operations", "with_effects"]


def new_operations(graph: tf.Graph, since: int) -> List[tf.Operation]:
    """The operations with side effects that were added to a graph since it had this many."""
    return [op for op in graph.get_operations()[since:] if op.op_def.is_stateful]


def led_to(result: Any) -> Set[tf.Operation]:
    """The operations that a session runs which trains with what a replica function returned."""
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


def with_effects(result: Any, effects: Sequence[tf.Operation]) -> Any:
    """What a replica function returned, so that a session which trains with it also runs these operations.

    Args:
        result: a tf.estimator.EstimatorSpec, whose `train_op` is to wait for them; or any structure, all of which is.
        effects: operations of the same graph.
    """
    if not effects:
        return result
    if hasattr(result, "train_op") and hasattr(result, "_replace"):
        train_op = result.train_op
        return result if train_op is None else result._replace(train_op=tf.group(train_op, *effects))
    with tf.control_dependencies(effects):
        return tf.nest.map_structure(_again, result)


def _again(value: Any) -> Any:
    if isinstance(value, tf.Operation):
        return tf.group(value)
    return tf.identity(value) if isinstance(value, (tf.Tensor, tf.Variable)) else value


def _of_graph(result: Any) -> List[Any]:
    kinds = (tf.Operation, tf.Tensor, tf.Variable)
    return [value for value in tf.nest.flatten(result, expand_composites=True) if isinstance(value, kinds)]
