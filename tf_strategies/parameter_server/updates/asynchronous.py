"""Asynchronous SGD: servers apply the gradients of each worker as soon as they arrive."""

from __future__ import annotations

from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies.parameter_server.cluster.membership import Membership
from tf_strategies.parameter_server.updates.compressed import CompressedPushes, Push
from tf_strategies.parameter_server.updates.damping import Damping
from tf_strategies.parameter_server.updates.server_writes import ServerWrites
from tf_strategies.parameter_server.updates.step import Step, current_step
from tf_strategies.parameter_server.updates.update_rule import (
    UpdateRule,
    is_gradient,
    run_on_part,
    to_put_off,
)
from tf_strategies.parameter_server.variables.parts import Part
from tf_strategies.parameter_server.variables.server_variable import ServerVariable
from tf_strategies.session_graphs.coordinator import in_session_graph
from tf_strategies.session_graphs.effects import taking_effect
from tf_strategies.types import Kwargs, Structure, TensorOrSlices

__all__ = ["AsynchronousUpdates"]

_GRADIENTS = (tf.Tensor, tf.IndexedSlices)


class _Update(NamedTuple):
    """The update of a variable.

    Attributes:
        fn: the function that updates the variable, given the variable and the arguments.
        pieces: the arguments, for each part.
        staleness: the staleness of the gradient; None if there is no gradient.
        has_gradient: whether the first argument is a gradient, of the variable's shape.
        merge: the number of the `merge_call` of the step that requested the update.
    """

    variable: ServerVariable
    fn: Callable[..., Structure]
    pieces: List[Tuple[Part, List[Structure]]]
    kwargs: Kwargs
    staleness: Optional[tf.Tensor]
    has_gradient: bool
    merge: int


class AsynchronousUpdates(UpdateRule):
    """Applies updates at once, and counts the updates by other workers since the weights were read: the staleness.

    Args:
        membership: this worker's entry in the ledger of the first server.
        max_staleness: how many steps this worker may be ahead of the slowest worker (Ho et al. 2013, stale
            synchronous parallel); None for no limit.
        damping: corrects stale gradients on the servers; None for no correction.
        compressed: sends compressed gradients to the servers; None for no compression.
    """

    def __init__(
        self,
        membership: Membership,
        *,
        max_staleness: Optional[int],
        damping: Optional[Damping],
        compressed: Optional[CompressedPushes] = None,
    ) -> None:
        self._membership = membership
        self._max_staleness = max_staleness
        self._damping = damping
        self._compressed = compressed

    def before_reading(self, step: Step) -> Sequence[tf.Tensor]:
        return [self._pulled(step)]

    def was_read(self, step: Step, part: Part, value: tf.Tensor, rows: Optional[tf.Tensor]) -> None:
        if self._damping is not None:
            self._damping.was_read(step, part, value, rows)

    def update(
        self,
        access: ServerWrites,
        variable: ServerVariable,
        fn: Callable[..., Structure],
        args: Tuple[Structure, ...],
        kwargs: Kwargs,
    ) -> List[Structure]:
        step = current_step()
        staleness = None
        if step is not None and variable.trainable and args and isinstance(args[0], _GRADIENTS):
            staleness = step.cached(("staleness",), lambda: self._push(step, args[0]))
        puts_off = step is not None and step.may_put_off
        args = to_put_off(args) if puts_off else args
        update = _Update(
            variable,
            fn,
            variable.pieces_of_arguments(args),
            kwargs,
            staleness,
            staleness is not None and is_gradient(args[0], variable),
            0 if step is None else step.merges,
        )
        if step is not None and in_session_graph():
            return self._make_for_session(access, step, update)
        if not puts_off:
            (update,) = self._pushed([update])
            return self._make(access, step, update)
        step.pending.append(update)
        step.settle = lambda: self._make_pending(access, step)
        return []

    def write(
        self, access: ServerWrites, variable: ServerVariable, how: str, value: TensorOrSlices, kwargs: Kwargs
    ) -> List[Structure]:
        return access.write(variable, how, value, kwargs)

    def end_step(self, step: Step) -> None:
        step.settle()

    def _make_pending(self, access: ServerWrites, step: Step) -> None:
        """Makes all pending updates, whose values are sent together, before any other operation on variables."""
        updates, step.pending = step.pending, []
        updates = self._pushed(updates)
        pieces = [piece for update in updates for piece in update.pieces]
        access.send_together(step, ((part.device, value) for part, args in pieces for value in args))
        for update in updates:
            self._make(access, step, update)
            step.forget(update.variable)

    def _make_for_session(self, access: ServerWrites, step: Step, update: _Update) -> List[Structure]:
        """Makes an update. Returns all operations that a session must run for it."""
        with taking_effect() as effects:
            (update,) = self._pushed([update])
        if update.staleness is not None:
            effects.append(update.staleness.op)
        results = self._make(access, step, update)
        step.forget(update.variable)
        return [*results, *effects]

    def _pushed(self, updates: Sequence[_Update]) -> List[_Update]:
        """Returns the updates with their gradients replaced by those that `CompressedPushes` has sent."""
        if self._compressed is None:
            return list(updates)
        pushes = [
            Push(update.variable, part, args[0], update.merge)
            for update in updates
            if update.has_gradient
            for part, args in update.pieces
        ]
        values = iter(self._compressed.pushed(pushes))
        return [
            update._replace(pieces=[(part, [next(values), *args[1:]]) for part, args in update.pieces])
            if update.has_gradient
            else update
            for update in updates
        ]

    def _make(self, access: ServerWrites, step: Optional[Step], update: _Update) -> List[Structure]:
        return [
            run_on_part(
                access,
                update.variable,
                index,
                part,
                self._on_arrival(update.fn, step, part, update.staleness),
                args,
                update.kwargs,
            )
            for index, (part, args) in enumerate(update.pieces)
        ]

    def _pulled(self, step: Step) -> tf.Tensor:
        with step.outside_of_branches():
            return step.cached(("pulled",), lambda: self._membership.pull(self._max_staleness))

    def _push(self, step: Step, gradient: TensorOrSlices) -> tf.Tensor:
        with tf.control_dependencies(_tensors_of([gradient])):
            return self._membership.push(self._pulled(step))

    def _on_arrival(
        self, fn: Callable[..., Structure], step: Optional[Step], part: Part, staleness: Optional[tf.Tensor]
    ) -> Callable[..., Structure]:
        """Returns a function that runs `fn` after its arguments have arrived.

        It corrects a stale gradient first.

        Without this, a graph may read the weights and slots when the step begins. It would then overwrite the
        updates that other workers have made since.
        """

        def arrived(variable: ServerVariable, *args: Any, **kwargs: Any) -> Structure:
            with tf.control_dependencies(_tensors_of(args)):
                if self._damping is not None and staleness is not None:
                    args = self._damping.damped(step, part, args[0], staleness), *args[1:]
                return fn(variable, *args, **kwargs)

        return arrived


def _tensors_of(values: Sequence[object]) -> List[tf.Tensor]:
    """Returns what has to arrive of these; a shape that comes with rows is known before."""
    rows = [
        part for each in values if isinstance(each, tf.IndexedSlices) for part in (each.values, each.indices)
    ]
    return rows + [each for each in values if isinstance(each, tf.Tensor)]
