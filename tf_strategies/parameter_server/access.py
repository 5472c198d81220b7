"""How a worker reads and writes what servers hold: in a step, every value travels once."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Dict, List, Optional, Sequence

import tensorflow as tf

from tf_strategies.parameter_server.step import Step, current_step
from tf_strategies.parameter_server.variables import Part, ServerVariable
from tf_strategies.parameter_server.wires import Wires

__all__ = ["ServerAccess"]


class ServerAccess:
    """Reads and writes of server variables, in replica functions, in updates and elsewhere.

    Args:
        wires: what carries tensors between this worker and the servers.
        before_reading: called in a step before it reads a variable to train it; returns what to wait for.
    """

    def __init__(self, wires: Wires, before_reading: Callable[[Step], Sequence[tf.Tensor]]) -> None:
        self._wires = wires
        self._before_reading = before_reading

    def read(self, variable: ServerVariable, trains: bool) -> tf.Tensor:
        """The whole value, on this worker; `trains` tells whether gradients by it will be computed."""
        step = current_step()
        if step is None:
            return self._fetch(variable, ())
        with step.outside_of_branches(), _placed_freely():
            return tf.identity(
                step.once(
                    ("value", id(variable)),
                    lambda: self._fetch(variable, self._awaited(step, trains)),
                    variable,
                )
            )

    def read_rows(self, variable: ServerVariable, indices: tf.Tensor, trains: bool) -> tf.Tensor:
        """Rows of the value, on this worker: [...] integers -> [..., row shape]."""
        with _placed_freely():
            awaited = self._awaited(current_step(), trains)
            if len(variable.parts) == 1:
                return self._fetch_rows(variable.parts[0], indices, awaited)
            return self._fetch_rows_of_parts(variable, indices, awaited)

    def read_in_update(self, part: Part, device: str) -> tf.Tensor:
        """The value of a part on the server where an update runs; one that lives on another server comes once in a step."""
        step = current_step()
        if device == part.device or step is None:
            return part.on_server(part.variable.read_value)

        def fetch() -> tf.Tensor:
            value = part.on_server(part.variable.read_value)
            with tf.device(device):
                return tf.identity(value)

        return step.once((device, id(part.variable)), fetch, part.variable)

    def write(self, variable: ServerVariable, how: str, value: Any, kwargs: Dict[str, Any]) -> None:
        """Calls the method `how` of each part, or in an update of the one that is updated, on its server."""
        step = current_step()
        if step is not None:
            step.forget(variable)
        for part, piece in variable.pieces(value):
            if step is not None:
                step.forget(part.variable)
            with tf.device(part.device):
                getattr(part.variable, how)(piece, **kwargs)

    def to_server(self, device: str, value: Any) -> Any:
        """A tensor or IndexedSlices of this worker, on a server; anything else as it is. In a step, each travels once."""
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
            return self._wires.push(value, device)
        return step.once((device, value.ref()), lambda: self._wires.push(value, device))

    def _awaited(self, step: Optional[Step], trains: bool) -> Sequence[tf.Tensor]:
        """What servers wait for before they read; the worker's own end of a wire does not."""
        return () if step is None or not trains else self._before_reading(step)

    def _fetch(self, variable: ServerVariable, awaited: Sequence[tf.Tensor]) -> tf.Tensor:
        with tf.control_dependencies(awaited):
            values = [part.on_server(part.variable.read_value) for part in variable.parts]
        pieces = [self._wires.pull(value, part.device) for value, part in zip(values, variable.parts)]
        return pieces[0] if len(pieces) == 1 else tf.concat(pieces, axis=0)

    def _fetch_rows(self, part: Part, indices: tf.Tensor, awaited: Sequence[tf.Tensor]) -> tf.Tensor:
        numbers = self._wires.push(indices, part.device)
        with tf.control_dependencies(awaited):
            rows = part.on_server(lambda: part.variable.sparse_read(numbers))
        return self._wires.pull(rows, part.device)

    def _fetch_rows_of_parts(
        self, variable: ServerVariable, indices: tf.Tensor, awaited: Sequence[tf.Tensor]
    ) -> tf.Tensor:
        flat = tf.reshape(indices, [-1])
        starts = tf.constant([part.start for part in variable.parts[1:]], flat.dtype)
        owners = tf.searchsorted(starts, flat, side="right", out_type=tf.int32)
        positions: List[tf.Tensor] = tf.dynamic_partition(
            tf.range(tf.size(flat)), owners, len(variable.parts)
        )
        rows = [
            self._fetch_rows(part, tf.gather(flat, where) - tf.cast(part.start, flat.dtype), awaited)
            for part, where in zip(variable.parts, positions)
        ]
        shape = tf.concat([tf.shape(indices), variable.shape[1:].as_list()], axis=0)
        result = tf.reshape(tf.dynamic_stitch(positions, rows), shape)
        result.set_shape(indices.shape.concatenate(variable.shape[1:]))
        return result


def _placed_freely() -> ContextManager:
    """While open, only devices say where operations go: Keras 2 looks rows up "colocated" with the variable's own handle."""
    if tf.executing_eagerly():
        return contextlib.nullcontext()
    return tf.compat.v1.get_default_graph().colocate_with(None, ignore_existing=True)
