"""What a compressor remembers of the gradients of each variable, on this worker."""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, Sequence, Tuple

import tensorflow as tf

from tf_strategies._tf import compat

__all__ = ["GradientState"]


class GradientState:
    """Variables that are made when they are first needed and live as long as the variable they belong to.

    Of each exchange the state counts one. A graph that a session runs has a state of its own, until there is another graph.

    Args:
        device: where they are made.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._eager = _Made()
        self._of_graph = _Made()

    @property
    def step(self) -> tf.Variable:
        """How many exchanges there were, [] int64."""
        made = self._made_here()
        if not made.steps:
            with tf.init_scope(), tf.device(self._device):
                made.steps.append(
                    compat.ResourceVariable(tf.zeros([], tf.int64), trainable=False, name="step")
                )
        return made.steps[0]

    def of(self, variable: Any, names: Sequence[str], *, adds_up: bool) -> Dict[str, tf.Variable]:
        """The slots of a variable of n elements, each float32 [n], at first zero.

        Args:
            names: of the slots.
            adds_up: whether what counts is their sum over workers; else it is the same on all of them.
        """
        key, slots = variable._unique_id, self._made_here().slots
        if key not in slots:
            with tf.init_scope(), tf.device(self._device):
                slots[key] = {name: _slot(variable, name, adds_up) for name in names}
            weakref.finalize(variable, slots.pop, key, None).atexit = False
        return slots[key]

    def _made_here(self) -> _Made:
        with tf.init_scope():
            if tf.executing_eagerly():
                return self._eager
            graph = tf.compat.v1.get_default_graph()
        if self._of_graph.graph is not graph:
            self._of_graph = _Made(graph)
        return self._of_graph


class _Made:
    def __init__(self, graph: Any = None) -> None:
        self.graph = graph
        self.steps: List[tf.Variable] = []
        self.slots: Dict[str, Dict[str, tf.Variable]] = {}


def _slot(variable: Any, name: str, adds_up: bool) -> tf.Variable:
    # A variable of TensorFlow's own kind, whatever strategy is in scope: it is this worker's, once for all its replicas.
    how: Tuple[Any, Any] = (tf.VariableSynchronization.AUTO, tf.VariableAggregation.NONE)
    if adds_up:
        how = (tf.VariableSynchronization.ON_READ, tf.VariableAggregation.SUM)
    label = f"{variable.name.partition(':')[0]}/{name}"
    return compat.ResourceVariable(
        tf.zeros([variable.shape.num_elements()]),
        trainable=False,
        name=label,
        synchronization=how[0],
        aggregation=how[1],
    )
