"""Keeps a compressor's state of each variable, on this worker."""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, Mapping, Optional, Sequence

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.types import Kwargs

__all__ = ["GradientState"]


class GradientState:
    """Makes state variables when they are first needed. They live as long as the variable they belong to.

    It also counts the exchanges. Each graph that a session runs has its own state.

    Args:
        device: the device of the state variables.
        is_local: whether each worker's session initializes them; otherwise the chief's session saves and
            restores them.
    """

    def __init__(self, device: str, *, is_local: bool = False) -> None:
        self.device = device
        keys = tf.compat.v1.GraphKeys
        self._collection = keys.LOCAL_VARIABLES if is_local else keys.GLOBAL_VARIABLES
        self._eager = _Made()
        self._of_graph = _Made()

    @property
    def step(self) -> tf.Variable:
        """The number of exchanges so far, [] int64."""
        made = self._made_here()
        if not made.steps:
            with tf.init_scope(), tf.device(self.device):
                made.steps.append(self._make(tf.zeros([], tf.int64), "step"))
        return made.steps[0]

    def of(
        self,
        variable: tf.Variable,
        names: Sequence[str],
        *,
        adds_up: bool,
        agreed: Optional[Mapping[str, int]] = None,
    ) -> Dict[str, tf.Variable]:
        """Returns the slots of a variable of n elements, initially zero.

        Args:
            names: the names of the slots that are float32 [n].
            adds_up: whether only the sum over workers matters; otherwise the values are equal on all workers.
            agreed: the lengths of further slots, whose values are equal on all workers, by name.
        """
        key, slots = variable._unique_id, self._made_here().slots
        if key not in slots:
            with tf.init_scope(), tf.device(self.device):
                elements = variable.shape.num_elements()
                slots[key] = {name: self._slot(variable, name, elements, adds_up) for name in names}
                for name, length in (agreed or {}).items():
                    slots[key][name] = self._slot(variable, name, length, adds_up=False)
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

    def _slot(self, variable: tf.Variable, name: str, elements: int, adds_up: bool) -> tf.Variable:
        how: Kwargs = {}
        if adds_up:
            how["synchronization"] = tf.VariableSynchronization.ON_READ
            how["aggregation"] = tf.VariableAggregation.SUM
        label = f"{variable.name.partition(':')[0]}/{name}"
        return self._make(tf.zeros([elements]), label, **how)

    def _make(self, initial: tf.Tensor, name: str, **how: Any) -> tf.Variable:
        # This is a plain TensorFlow variable for every strategy. It belongs to this worker, and its replicas
        # share it.
        return compat.ResourceVariable(
            initial, trainable=False, name=name, collections=[self._collection], **how
        )


class _Made:
    def __init__(self, graph: Optional[tf.Graph] = None) -> None:
        self.graph = graph
        self.steps: List[tf.Variable] = []
        self.slots: Dict[str, Dict[str, tf.Variable]] = {}
