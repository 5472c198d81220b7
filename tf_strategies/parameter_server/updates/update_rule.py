"""Defines when and how gradients change variables on servers. Only this differs between the parameter-server strategies."""

from __future__ import annotations

import abc
from typing import Callable, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies.parameter_server.updates.server_writes import ServerWrites
from tf_strategies.parameter_server.updates.step import Step
from tf_strategies.parameter_server.variables.parts import Part, updating_part
from tf_strategies.parameter_server.variables.server_variable import ServerVariable
from tf_strategies.types import Kwargs, Structure, TensorOrSlices

__all__ = ["UpdateRule", "is_gradient", "run_on_part", "run_there", "to_put_off", "to_server"]


class UpdateRule(abc.ABC):
    """Defines the actions of a step: before it reads, for updates and other writes of variables, and at its end.

    Attributes:
        replicas_in_sync: the number of workers that share a batch and average the loss; 1 if each worker has
            its own batches.
    """

    replicas_in_sync = 1

    @abc.abstractmethod
    def before_reading(self, step: Step) -> Sequence[tf.Tensor]:
        """Returns the operations that must run before the step reads variables to train them."""

    def was_read(self, step: Step, part: Part, value: tf.Tensor, rows: Optional[tf.Tensor]) -> None:
        """Notes that a step has read a part of a variable.

        Args:
            step: the step.
            part: the part.
            value: its value on its server: the whole value, or rows of it, [..., row shape].
            rows: the numbers of these rows within the part, [...] integer, on the same server; None for the
                whole value.
        """
        del step, part, value, rows

    def is_read(self, variable: ServerVariable) -> None:
        """Notes that a worker reads a variable, outside of updates."""
        del variable

    @abc.abstractmethod
    def update(
        self,
        access: ServerWrites,
        variable: ServerVariable,
        fn: Callable[..., Structure],
        args: Tuple[Structure, ...],
        kwargs: Kwargs,
    ) -> List[Structure]:
        """Calls `fn(variable, *args, **kwargs)` on the server of each part of the variable."""

    @abc.abstractmethod
    def write(
        self, access: ServerWrites, variable: ServerVariable, how: str, value: TensorOrSlices, kwargs: Kwargs
    ) -> List[Structure]:
        """Calls the method `how` of each part of a variable that a replica writes outside of updates.

        Returns the results.
        """

    def apply_if_finite(self, finite: tf.Tensor, apply: Callable[[], None], skip: Callable[[], None]) -> None:
        """Makes the updates that `apply` requests if the gradients of a step are finite, and else those of `skip`.

        Args:
            finite: [] bool, whether the gradients of this worker are finite.
            apply, skip: request updates and writes of variables.
        """
        tf.cond(finite, apply, skip)

    def leave_out(self, step: Step, result: Structure) -> None:
        """Removes the operations from the step that its result does not need, in a graph that a session runs.

        Args:
            step: the step that is about to end.
            result: the result of the replica function.
        """
        del step, result

    @abc.abstractmethod
    def end_step(self, step: Step) -> None:
        """Completes the step."""


def is_gradient(value: object, variable: tf.Variable) -> bool:
    """Returns True if the first argument of an update of a trainable variable is, or may be, its gradient."""
    return isinstance(value, tf.IndexedSlices) or (
        isinstance(value, tf.Tensor) and value.shape.is_compatible_with(variable.shape)
    )


def to_put_off(args: Tuple[Structure, ...]) -> Tuple[Structure, ...]:
    """Returns the arguments of a postponed update, which keep the control dependencies of the caller."""
    if not args:
        return args
    gradient = tf.nest.map_structure(
        lambda each: tf.identity(each) if isinstance(each, tf.Tensor) else each,
        args[0],
        expand_composites=True,
    )
    return (gradient, *args[1:])


def run_on_part(
    access: ServerWrites,
    variable: ServerVariable,
    index: int,
    part: Part,
    fn: Callable[..., Structure],
    args: Sequence[Structure],
    kwargs: Kwargs,
) -> Structure:
    """Calls `fn` on the server of one part. The arguments are on this worker, and already cut for the part."""
    args, kwargs = to_server(access, part, (args, kwargs))
    return run_there(variable, index, part, fn, args, kwargs)


def to_server(access: ServerWrites, part: Part, arguments: Structure) -> Structure:
    """Returns the arguments of this worker, in any structure, on the server of a part."""
    return tf.nest.map_structure(lambda each: access.to_server(part.device, each), arguments)


def run_there(
    variable: ServerVariable,
    index: int,
    part: Part,
    fn: Callable[..., Structure],
    args: Sequence[Structure],
    kwargs: Kwargs,
) -> Structure:
    """Does the same as `run_on_part`, with arguments that are already on the server."""
    with tf.device(part.device), updating_part(index, part.device):
        return fn(variable, *args, **kwargs)
