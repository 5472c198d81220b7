"""What a compressor remembers of the gradients of each variable, on this worker."""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, Sequence, Tuple

import tensorflow as tf

from tf_strategies._tf import compat

__all__ = ["GradientState"]


_OF_GRAPH = "_tf_strategies_gradient_states"


class _Held:
    """Slots by variable and name, and the count of exchanges once it is there."""

    def __init__(self) -> None:
        self.slots: Dict[str, Dict[str, tf.Variable]] = {}
        self.steps: List[tf.Variable] = []


class GradientState:
    """Variables that are made when they are first needed and live as long as the variable they belong to.

    Of each exchange the state counts one. In a graph that a session runs they are local to the session, and begin anew with it.

    Args:
        device: where they are made.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._own = _Held()

    @property
    def step(self) -> tf.Variable:
        """How many exchanges there were, [] int64."""
        held = self._held
        if not held.steps:
            with tf.init_scope(), tf.device(self._device):
                held.steps.append(_made(tf.zeros([], tf.int64), "step"))
        return held.steps[0]

    def of(self, variable: Any, names: Sequence[str], *, adds_up: bool) -> Dict[str, tf.Variable]:
        """The slots of a variable of n elements, each float32 [n], at first zero.

        Args:
            names: of the slots.
            adds_up: whether what counts is their sum over workers; else it is the same on all of them.
        """
        key, slots = variable._unique_id, self._held.slots
        if key not in slots:
            with tf.init_scope(), tf.device(self._device):
                slots[key] = {name: _slot(variable, name, adds_up) for name in names}
            weakref.finalize(variable, slots.pop, key, None).atexit = False
        return slots[key]

    @property
    def _held(self) -> _Held:
        """What a graph for sessions is given lives with it."""
        if tf.compat.v1.executing_eagerly_outside_functions():
            return self._own
        with tf.init_scope():
            graph = tf.compat.v1.get_default_graph()
        held = getattr(graph, _OF_GRAPH, None)
        if held is None:
            held = weakref.WeakKeyDictionary()
            setattr(graph, _OF_GRAPH, held)
        return held.setdefault(self, _Held())


def _slot(variable: Any, name: str, adds_up: bool) -> tf.Variable:
    # A variable of TensorFlow's own kind, whatever strategy is in scope: it is this worker's, once for all its replicas.
    how: Tuple[Any, Any] = (tf.VariableSynchronization.AUTO, tf.VariableAggregation.NONE)
    if adds_up:
        how = (tf.VariableSynchronization.ON_READ, tf.VariableAggregation.SUM)
    label = f"{variable.name.partition(':')[0]}/{name}"
    zeros = tf.zeros([variable.shape.num_elements()])
    return _made(zeros, label, synchronization=how[0], aggregation=how[1])


def _made(initial: tf.Tensor, name: str, **how: Any) -> tf.Variable:
    local = [tf.compat.v1.GraphKeys.LOCAL_VARIABLES]
    return compat.ResourceVariable(initial, trainable=False, name=name, collections=local, **how)
