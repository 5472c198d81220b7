"""Asynchronous SGD: the gradients of each worker change the variables as soon as they come."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies.parameter_server.membership import Membership
from tf_strategies.parameter_server.step import Step, current_step
from tf_strategies.parameter_server.update_rule import UpdateRule, run_on_part
from tf_strategies.parameter_server.variables import ServerVariable

__all__ = ["AsynchronousUpdates"]


class AsynchronousUpdates(UpdateRule):
    """Updates at once, and counts how many updates others have made since the weights were read: the staleness.

    Args:
        membership: this worker's entry in the ledger of the first server.
        max_staleness: how many steps this worker may be ahead of the slowest (Ho et al. 2013, stale synchronous parallel);
            None for any number.
        divide_by_staleness: whether gradients are divided by their staleness where that is above 1 (Zhang et al. 2016,
            staleness-aware async-SGD; with plain SGD the same as dividing the learning rate).
    """

    def __init__(
        self, membership: Membership, *, max_staleness: Optional[int], divide_by_staleness: bool
    ) -> None:
        self._membership = membership
        self._max_staleness = max_staleness
        self._divide = divide_by_staleness

    def before_reading(self, step: Step) -> Sequence[tf.Tensor]:
        return [self._pulled(step)]

    def update(
        self, access: Any, variable: ServerVariable, fn: Callable, args: Tuple, kwargs: Dict[str, Any]
    ) -> List[Any]:
        step = current_step()
        if step is not None and variable.trainable and args:
            staleness = step.once(("staleness",), lambda: self._push(step, args[0]))
            if self._divide:
                args = (_divided(args[0], staleness), *args[1:])
        return [
            run_on_part(access, variable, index, part, fn, mine, kwargs)
            for index, (part, mine) in enumerate(variable.pieces_of_arguments(args))
        ]

    def write(
        self, access: Any, variable: ServerVariable, how: str, value: Any, kwargs: Dict[str, Any]
    ) -> None:
        access.write(variable, how, value, kwargs)

    def end_step(self, step: Step) -> None:
        """All was done at once."""

    def _pulled(self, step: Step) -> tf.Tensor:
        with step.outside_of_branches():
            return step.once(("pulled",), lambda: self._membership.pull(self._max_staleness))

    def _push(self, step: Step, gradient: Any) -> tf.Tensor:
        with tf.control_dependencies(tf.nest.flatten(gradient, expand_composites=True)):
            pulled = tf.identity(self._pulled(step))
        return self._membership.push(pulled)


def _divided(gradient: Any, staleness: tf.Tensor) -> Any:
    values = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    divided = values / tf.cast(tf.maximum(staleness, 1), values.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(divided, gradient.indices, gradient.dense_shape)
    return divided
