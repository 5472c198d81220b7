"""Defines when and how gradients change variables on servers. Only this differs between the parameter-server strategies."""

from __future__ import annotations

import abc
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies.parameter_server.updates.server_writes import ServerWrites
from tf_strategies.parameter_server.updates.step import Step
from tf_strategies.parameter_server.variables.parts import Part, updating_part
from tf_strategies.parameter_server.variables.server_variable import ServerVariable

__all__ = ["UpdateRule", "is_gradient", "run_on_part", "run_there", "to_put_off", "to_server"]


class UpdateRule(abc.ABC):
    """Defines what happens when a step begins to read, updates a variable, writes one otherwise, and ends.

    Attributes:
        replicas_in_sync: over how many workers a batch is split, and a loss averaged; 1 where each has batches of its own.
    """

    replicas_in_sync = 1

    @abc.abstractmethod
    def before_reading(self, step: Step) -> Sequence[tf.Tensor]:
        """Returns what has to happen before the step reads variables to train them."""

    def was_read(self, step: Step, part: Part, value: tf.Tensor, rows: Optional[tf.Tensor]) -> None:
        """Notes that a step has read a part of a variable.

        Args:
            step: the step.
            part: what was read.
            value: what it held, on its server: all of it, or [..., row shape], rows of it.
            rows: their numbers within the part, [...] integer, on the same server; None for all.
        """
        del step, part, value, rows

    @abc.abstractmethod
    def update(
        self,
        access: ServerWrites,
        variable: ServerVariable,
        fn: Callable,
        args: Tuple,
        kwargs: Dict[str, Any],
    ) -> List[Any]:
        """Calls `fn(variable, *args, **kwargs)` on the server of each part of the variable."""

    @abc.abstractmethod
    def write(
        self, access: ServerWrites, variable: ServerVariable, how: str, value: Any, kwargs: Dict[str, Any]
    ) -> List[Any]:
        """Calls the method `how` of each part of a variable that a replica writes to outside of updates; returns the results."""

    def leave_out(self, step: Step, result: Any) -> None:
        """Leaves operations out of the step that its result does not need, in a graph that a session runs.

        Args:
            step: the step, which is to end.
            result: what the replica function returned.
        """
        del step, result

    @abc.abstractmethod
    def end_step(self, step: Step) -> None:
        """Completes what the step began."""


def is_gradient(value: Any, variable: Any) -> bool:
    """Returns True if the first argument of an update of a trainable variable is, or may be, its gradient."""
    return isinstance(value, tf.IndexedSlices) or (
        isinstance(value, tf.Tensor) and value.shape.is_compatible_with(variable.shape)
    )


def to_put_off(args: Tuple) -> Tuple:
    """Arguments of an update that is made later, which then still waits for what its caller does (`tf.control_dependencies`)."""
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
    fn: Callable,
    args: Sequence,
    kwargs: Dict[str, Any],
) -> Any:
    """Calls `fn` on the server of one part; arguments are those of this worker, cut for the part already."""
    args, kwargs = to_server(access, part, (args, kwargs))
    return run_there(variable, index, part, fn, args, kwargs)


def to_server(access: ServerWrites, part: Part, arguments: Any) -> Any:
    """Arguments of this worker, in any structure, on the server of a part."""
    return tf.nest.map_structure(lambda each: access.to_server(part.device, each), arguments)


def run_there(
    variable: ServerVariable, index: int, part: Part, fn: Callable, args: Sequence, kwargs: Dict[str, Any]
) -> Any:
    """Does the same as `run_on_part`, with arguments that are on the server already."""
    with tf.device(part.device), updating_part(index, part.device):
        return fn(variable, *args, **kwargs)
