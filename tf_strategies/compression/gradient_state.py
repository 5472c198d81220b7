"""What a compressor remembers of the gradients of each variable, on this worker."""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, Sequence, Tuple

import tensorflow as tf

from tf_strategies._tf import compat

__all__ = ["GradientState"]


class GradientState:
    """Variables that are made when they are first needed and live as long as the variable they belong to.

    Of each exchange the state counts one.

    Args:
        device: where they are made.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._slots: Dict[str, Dict[str, tf.Variable]] = {}
        self._steps: List[tf.Variable] = []

    @property
    def step(self) -> tf.Variable:
        """How many exchanges there were, [] int64."""
        if not self._steps:
            with tf.init_scope(), tf.device(self._device):
                self._steps.append(
                    compat.ResourceVariable(tf.zeros([], tf.int64), trainable=False, name="step")
                )
        return self._steps[0]

    def of(self, variable: Any, names: Sequence[str], *, adds_up: bool) -> Dict[str, tf.Variable]:
        """The slots of a variable of n elements, each float32 [n], at first zero.

        Args:
            names: of the slots.
            adds_up: whether what counts is their sum over workers; else it is the same on all of them.
        """
        key = variable._unique_id
        if key not in self._slots:
            with tf.init_scope(), tf.device(self._device):
                self._slots[key] = {name: _slot(variable, name, adds_up) for name in names}
            weakref.finalize(variable, self._slots.pop, key, None).atexit = False
        return self._slots[key]


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
