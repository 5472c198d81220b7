"""Reads and writes variables of servers. Within a step each value is sent once."""

from __future__ import annotations

import contextlib
import functools
from typing import Callable, ContextManager, Dict, Hashable, Iterable, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies.parameter_server.cluster.transport import Transport
from tf_strategies.parameter_server.updates.step import Step, current_step
from tf_strategies.parameter_server.updates.update_rule import UpdateRule
from tf_strategies.parameter_server.variables.parts import Part
from tf_strategies.parameter_server.variables.server_variable import ServerVariable
from tf_strategies.parameter_server.variables.small_tensors import FetchGroups, is_small, join, take_apart
from tf_strategies.types import Kwargs, Result, Structure, TensorOrSlices, Value

__all__ = ["ServerAccess"]


class ServerAccess:
    """Reads and writes server variables, in replica functions, in updates and elsewhere.

    Args:
        transport: carries tensors between this worker and the servers.
        rule: the update rule. It says what a training step waits for before it reads a variable, and is
            notified of each read.
        call: calls a function that waits for servers, and ends the call when a server is lost.

    Attributes:
        on_write: is told of each write outside of a step: the part of a variable, the method and the value.
    """

    def __init__(
        self, transport: Transport, rule: UpdateRule, call: Callable[[Callable[[], Result]], Result]
    ) -> None:
        self._transport = transport
        self._call = call
        self.on_write: Callable[[Part, str, TensorOrSlices], None] = _ignore
        self._rule = rule
        self._fetch_groups = FetchGroups()

    def begin_model(self) -> None:
        """Starts a new group of variables that are fetched together."""
        self._fetch_groups.begin()

    def fetch_with_others(self, variable: ServerVariable) -> None:
        """Adds a small variable to the group of variables that are fetched together."""
        if all(part.device != self._transport.device for part in variable.parts):
            self._fetch_groups.add(variable)

    def ask(self, function: Callable[[], tf.Tensor]) -> tf.Tensor:
        """Calls a function that reads from servers.

        In eager code it waits for the tensor, and ends when a server is lost.
        """
        return self._call(lambda: _come(function())) if tf.executing_eagerly() else function()

    def read(self, variable: ServerVariable, trains: bool, dtype: Optional[tf.DType] = None) -> tf.Tensor:
        """Returns the whole value on this worker.

        Args:
            variable: the variable.
            trains: whether gradients with respect to the value will be computed.
            dtype: the type to which the servers cast the value before they send it; None for that of the variable.
        """
        dtype = variable.dtype if dtype is None else dtype
        step = current_step()
        if step is None:
            if not tf.executing_eagerly():
                variable.last_read_as = dtype  # Keras builds layers in a graph without a step
            return self.ask(lambda: self._fetch(variable, (), dtype))
        step.settle()
        with step.outside_of_branches(), _placed_freely():
            whole = step.held(("value", id(variable), variable.dtype))
            if whole is not None:
                return tf.identity(tf.cast(whole, dtype))
            variable.last_read_as = dtype
            return tf.identity(
                step.cached(
                    ("value", id(variable), dtype),
                    lambda: self._fetch_in_step(step, variable, trains, dtype),
                    variable,
                )
            )

    def read_rows(
        self, variable: ServerVariable, indices: tf.Tensor, trains: bool, dtype: tf.DType
    ) -> tf.Tensor:
        """Returns rows of the value on this worker, cast to `dtype` on the servers: [...] integers -> [..., row shape]."""
        step = current_step()
        if step is not None:
            step.settle()
        with _placed_freely():
            awaited = self._awaited(step, trains)
            if len(variable.parts) == 1:
                return self.ask(lambda: self._fetch_rows(variable.parts[0], indices, awaited, dtype))
            return self.ask(lambda: self._fetch_rows_of_parts(variable, indices, awaited, dtype))

    def read_in_update(self, part: Part, device: str) -> tf.Tensor:
        """Returns the value of a part on the server where an update runs.

        A part of another server is sent once in a step.
        """
        step = current_step()
        if device == part.device or step is None:
            return part.on_server(part.variable.read_value)

        def fetch() -> tf.Tensor:
            value = part.on_server(part.variable.read_value)
            with tf.device(device):
                return tf.identity(value)

        with step.between_servers(part.variable):
            return step.cached((device, id(part.variable)), fetch, part.variable)

    def write(
        self, variable: ServerVariable, how: str, value: TensorOrSlices, kwargs: Kwargs
    ) -> List[Structure]:
        """Calls the method `how` of each part on its server, or in an update of the part being updated.

        Returns the results.
        """
        results = []
        step = current_step()
        is_between_steps = step is None and tf.executing_eagerly()
        may_repeat = how == "assign" and is_between_steps
        if step is not None:
            step.settle()
            step.forget(variable)
        for part, piece in variable.pieces(value):
            if step is not None:
                step.require_on_server(part.device)
                step.forget(part.variable)
            if is_between_steps:
                self.on_write(part, how, piece)
            write = functools.partial(getattr(part.variable, how), piece, **kwargs)
            with tf.device(part.device):
                results.append(self._call(write) if may_repeat else write())
        return results

    def to_server(self, device: str, value: Value) -> Value:
        """Returns a tensor or IndexedSlices of this worker on a server, and other values unchanged.

        A step sends each value once.
        """
        if isinstance(value, tf.IndexedSlices):
            return tf.IndexedSlices(
                self.to_server(device, value.values), self.to_server(device, value.indices), value.dense_shape
            )
        if not isinstance(value, tf.Tensor):
            return value
        step = current_step()
        if value.device == device:
            return value
        if step is None:
            return self._transport.push(value, device)
        return step.cached((device, value.ref()), lambda: self._transport.push(value, device))

    def send_together(self, step: Step, values: Iterable[Tuple[str, object]]) -> None:
        """Sends the small tensors among these to their devices, in one message for each device.

        `to_server` then uses them.
        """
        groups: Dict[Tuple[str, tf.DType], Dict[Hashable, tf.Tensor]] = {}
        for device, value in values:
            if isinstance(value, tf.Tensor) and value.device != device and is_small(value):
                groups.setdefault((device, value.dtype), {})[value.ref()] = value
        for (device, _), group in groups.items():
            if len(group) > 1:
                self._send_group(step, device, list(group.values()))

    def _send_group(self, step: Step, device: str, tensors: List[tf.Tensor]) -> None:
        joined = self._transport.push(join(tensors), device)
        with tf.device(device):
            arrived = take_apart(joined, [tensor.shape for tensor in tensors])
        for tensor, there in zip(tensors, arrived):
            step.cached((device, tensor.ref()), lambda there=there: there)

    def _fetch_in_step(
        self, step: Step, variable: ServerVariable, trains: bool, dtype: tf.DType
    ) -> tf.Tensor:
        awaited = self._awaited(step, trains)
        together = [variable] if step.has_written(variable) else self._fetch_groups.of(variable, dtype)
        if len(together) == 1:
            return self._fetch(variable, awaited, dtype)
        key = ("together", trains, dtype, *map(id, together))
        return step.cached(key, lambda: self._fetch_together(together, awaited, dtype))[id(variable)]

    def _fetch_together(
        self, variables: Sequence[ServerVariable], awaited: Sequence[tf.Tensor], dtype: tf.DType
    ) -> Dict[int, tf.Tensor]:
        device = variables[0].parts[0].device
        there = [self._read_there(variable, variable.parts[0], awaited) for variable in variables]
        with tf.device(device):
            joined = tf.cast(join(there), dtype)
        values = take_apart(self._transport.pull(joined, device), [variable.shape for variable in variables])
        return {id(variable): value for variable, value in zip(variables, values)}

    def _read_there(self, variable: ServerVariable, part: Part, awaited: Sequence[tf.Tensor]) -> tf.Tensor:
        """Returns the value of a part on its server. A traced step reads it once, also if it is sent in two types."""

        def read() -> tf.Tensor:
            with tf.control_dependencies(awaited):
                value = part.on_server(part.variable.read_value)
            self._tell(part, value)
            return value

        step = current_step()
        if step is None or tf.executing_eagerly():
            return read()
        return step.cached(("there", id(part.variable), bool(awaited)), read, variable)

    def _tell(self, part: Part, value: tf.Tensor, rows: Optional[tf.Tensor] = None) -> None:
        step = current_step()
        if step is not None:
            part.on_server(lambda: self._rule.was_read(step, part, value, rows))

    def _awaited(self, step: Optional[Step], trains: bool) -> Sequence[tf.Tensor]:
        """Returns the operations that servers wait for before they read.

        The receiving operation on the worker does not wait.
        """
        return () if step is None or not trains else self._rule.before_reading(step)

    def _fetch(self, variable: ServerVariable, awaited: Sequence[tf.Tensor], dtype: tf.DType) -> tf.Tensor:
        values = [self._read_there(variable, part, awaited) for part in variable.parts]
        pieces = [self._pull(value, part, dtype) for value, part in zip(values, variable.parts)]
        return pieces[0] if len(pieces) == 1 else tf.concat(pieces, axis=0)

    def _pull(self, value: tf.Tensor, part: Part, dtype: tf.DType) -> tf.Tensor:
        """Returns a value of a server on this worker, in the type in which it is sent."""
        return self._transport.pull(part.on_server(lambda: tf.cast(value, dtype)), part.device)

    def _fetch_rows(
        self, part: Part, indices: tf.Tensor, awaited: Sequence[tf.Tensor], dtype: tf.DType
    ) -> tf.Tensor:
        numbers = self._transport.push(indices, part.device)
        with tf.control_dependencies(awaited):
            rows = part.on_server(lambda: part.variable.sparse_read(numbers))
        self._tell(part, rows, numbers)
        return self._pull(rows, part, dtype)

    def _fetch_rows_of_parts(
        self,
        variable: ServerVariable,
        indices: tf.Tensor,
        awaited: Sequence[tf.Tensor],
        dtype: tf.DType,
    ) -> tf.Tensor:
        flat = tf.reshape(indices, [-1])
        starts = tf.constant([part.start for part in variable.parts[1:]], flat.dtype)
        owners = tf.searchsorted(starts, flat, side="right", out_type=tf.int32)
        positions: List[tf.Tensor] = tf.dynamic_partition(
            tf.range(tf.size(flat)), owners, len(variable.parts)
        )
        rows = [
            self._fetch_rows(part, tf.gather(flat, where) - tf.cast(part.start, flat.dtype), awaited, dtype)
            for part, where in zip(variable.parts, positions)
        ]
        shape = tf.concat([tf.shape(indices), variable.shape[1:].as_list()], axis=0)
        result = tf.reshape(tf.dynamic_stitch(positions, rows), shape)
        result.set_shape(indices.shape.concatenate(variable.shape[1:]))
        return result


def _ignore(part: Part, how: str, value: TensorOrSlices) -> None:
    del part, how, value


def _placed_freely() -> ContextManager:
    """Opens a context in which operations run on the current device, whatever "colocated with" says.

    Keras 2 looks up rows "colocated" with the local handle of the variable.
    """
    if tf.executing_eagerly():
        return contextlib.nullcontext()
    return tf.compat.v1.get_default_graph().colocate_with(None, ignore_existing=True)


def _come(value: tf.Tensor) -> tf.Tensor:
    """Waits until the tensor has been computed, and returns it. TensorFlow itself returns earlier."""
    tf.reshape(value, [-1])[:1].numpy()
    return value
