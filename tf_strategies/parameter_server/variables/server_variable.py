"""Implements variables whose values are on parameter servers, in one part or cut along axis 0 into several."""

from __future__ import annotations

import itertools
import weakref
from typing import Callable, List, Optional, Sequence, Tuple, Union

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.keras.kept_gradients import kept_in, note_read
from tf_strategies.parameter_server.variables.parts import Part, rows_of_part, running_update
from tf_strategies.types import Fetch, Kwargs, Structure, TensorLike, TensorOrSlices

__all__ = ["ServerVariable"]

# TensorFlow numbers the arguments of a function from 0.
_numbers = itertools.count(1 << 32)


class ServerVariable(compat.BaseResourceVariable):
    """A variable for Keras and for tapes. Reads and writes go to the servers that hold its parts.

    Its own handle has no value. Tapes and functions identify the variable by it.

    Args:
        parts: the parts, in the order of rows.
        shape, dtype, name, trainable, synchronization, aggregation, constraint: as of tf.Variable.
        strategy: the parameter-server strategy.
        in_graph_mode: whether it belongs to a graph that a session runs.

    Attributes:
        fetched_together: references to the variables that a step fetches together with this one, itself among them.
        casts_on_servers: whether `read_as` sends a narrower type.
        last_read_as: the type in which steps have last read the value; None before they have.
        is_added_to: whether steps add to it, by themselves or by a value that is computed from the old one.
        is_learning_rate: whether it is the learning rate of an optimizer. A callback may compute it from the old one, and all
            workers run the callback. So in `fit` only the first worker sets it.
    """

    lives_on_servers = True
    looks_up_in_place = True
    casts_on_servers = True
    last_read_as: Optional[tf.DType] = None
    is_added_to = False
    is_learning_rate = False
    fetched_together: Sequence[weakref.ref[ServerVariable]] = ()

    def __init__(
        self,
        parts: Sequence[Part],
        *,
        shape: tf.TensorShape,
        dtype: tf.DType,
        name: str,
        strategy: tf.distribute.Strategy,
        trainable: Optional[bool] = None,
        synchronization: tf.VariableSynchronization = tf.VariableSynchronization.AUTO,
        aggregation: tf.VariableAggregation = tf.VariableAggregation.NONE,
        constraint: Optional[Callable[[tf.Tensor], tf.Tensor]] = None,
        in_graph_mode: bool = False,
    ) -> None:
        self.parts = tuple(parts)
        self._strategy, self._access = strategy, strategy.extended.access
        self._rule = strategy.extended.rule
        self._number = next(_numbers)
        unique = f"{name}_{id(self)}"
        with tf.init_scope(), tf.device(strategy.extended.worker_devices[0]):
            of_whole = f"{name}/" if in_graph_mode and len(self.parts) > 1 else None
            handle = compat.variable_handle(
                shape, dtype, name, container="", shared_name=unique, op_name=of_whole
            )
        super().__init__(
            trainable=trainable,
            shape=shape,
            dtype=dtype,
            handle=handle,
            constraint=constraint,
            synchronization=synchronization,
            aggregation=aggregation,
            distribute_strategy=strategy,
            name=name,
            unique_id=unique,
            handle_name=name,
            in_graph_mode=in_graph_mode,
        )

    @property
    def handle(self):
        part = self._part_in_update()
        return self._handle if part is None else part.variable.handle

    @property
    def shape(self):
        part = self._part_in_update()
        return self._shape if part is None or len(self.parts) == 1 else part.variable.shape

    @property
    def device(self) -> str:
        """The device of the first part."""
        part = self._part_in_update()
        return self.parts[0].device if part is None else part.device

    def is_initialized(self, name=None):
        del name
        parts = self._targets()
        return self._access.ask(
            lambda: tf.reduce_all([part.on_server(part.variable.is_initialized) for part in parts])
        )

    def numpy(self):
        """Fetches the whole value from the servers."""
        return self.read_value().numpy()

    def _read_variable_op(self, no_copy=False):
        del no_copy
        if compat.is_saving():
            return super()._read_variable_op()
        update = running_update()
        if update is not None:
            return self._access.read_in_update(self._part_in_update(), update.device)
        trains = self._trains_with_reads()
        return self._recorded(lambda: self._access.read(self, trains), lambda upstream: upstream)

    def read_as(self, dtype: tf.DType) -> tf.Tensor:
        """Returns the value, cast to `dtype`. If this has fewer bytes, the servers cast it before they send it."""
        if not self._can_cast_on_servers(dtype):
            return tf.cast(self.value(), dtype)
        trains = self._trains_with_reads()
        return self._recorded(
            lambda: self._access.read(self, trains, dtype), lambda upstream: tf.cast(upstream, self.dtype)
        )

    def read_at_start(self) -> tf.Tensor:
        """Returns the value, which a training step reads together with the weights."""
        return self._access.read(self, trains=True)

    def sparse_read(self, indices, name=None):
        """Returns the rows with these indices, [...] integer -> [..., row shape]. Only these rows are sent."""
        del name
        if compat.is_saving():
            return super().sparse_read(indices)
        indices = tf.convert_to_tensor(indices)
        part = self._part_in_update()
        if part is not None:
            return part.on_server(lambda: part.variable.sparse_read(indices))
        return self._read_rows(indices, self.dtype)

    def sparse_read_as(self, indices: TensorLike, dtype: tf.DType) -> tf.Tensor:
        """Returns rows as `sparse_read` does, cast to `dtype`. If this has fewer bytes, the servers cast them."""
        if not self._can_cast_on_servers(dtype):
            return tf.cast(self.sparse_read(indices), dtype)
        return self._read_rows(tf.convert_to_tensor(indices), dtype)

    def _read_rows(self, indices: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        def slices(upstream: tf.Tensor) -> tf.IndexedSlices:
            flat = tf.reshape(indices, [-1])
            rows = tf.reshape(upstream, tf.concat([tf.shape(flat), self.shape[1:]], axis=0))
            rows = tf.cast(rows, self.dtype)
            return tf.IndexedSlices(rows, flat, dense_shape=tf.constant(self.shape.as_list(), flat.dtype))

        trains = self._trains_with_reads()
        return self._recorded(lambda: self._access.read_rows(self, indices, trains, dtype), slices)

    def _can_cast_on_servers(self, dtype: tf.DType) -> bool:
        """Returns True if the value is sent, and has fewer bytes as `dtype`."""
        if not self.casts_on_servers or compat.is_saving() or running_update() is not None:
            return False
        return dtype.is_floating and self.dtype.is_floating and dtype.size < self.dtype.size

    def gather_nd(self, indices, name=None):
        return tf.gather_nd(self.read_value(), indices, name=name)

    def assign(self, value, use_locking=None, name=None, read_value=True):
        return self._write("assign", value, use_locking)

    def assign_add(self, delta, use_locking=None, name=None, read_value=True):
        return self._write("assign_add", delta, use_locking)

    def assign_sub(self, delta, use_locking=None, name=None, read_value=True):
        return self._write("assign_sub", delta, use_locking)

    def scatter_add(self, sparse_delta, use_locking=False, name=None):
        return self._scatter("scatter_add", sparse_delta)

    def scatter_sub(self, sparse_delta, use_locking=False, name=None):
        return self._scatter("scatter_sub", sparse_delta)

    def scatter_max(self, sparse_delta, use_locking=False, name=None):
        return self._scatter("scatter_max", sparse_delta)

    def scatter_min(self, sparse_delta, use_locking=False, name=None):
        return self._scatter("scatter_min", sparse_delta)

    def scatter_mul(self, sparse_delta, use_locking=False, name=None):
        return self._scatter("scatter_mul", sparse_delta)

    def scatter_div(self, sparse_delta, use_locking=False, name=None):
        return self._scatter("scatter_div", sparse_delta)

    def scatter_update(self, sparse_delta, use_locking=False, name=None):
        return self._scatter("scatter_update", sparse_delta)

    def pieces(self, value: TensorOrSlices) -> List[Tuple[Part, TensorOrSlices]]:
        """Cuts a value of this variable's shape, or IndexedSlices of it, into parts."""
        targets = self._targets()
        if len(targets) == 1:
            return [(targets[0], value)]
        if isinstance(value, tf.IndexedSlices):
            return [(part, rows_of_part(part, value)) for part in targets]
        cut = tf.split(tf.convert_to_tensor(value), [part.rows for part in targets], axis=0)
        return list(zip(targets, cut))

    def pieces_of_arguments(self, args: Sequence[Structure]) -> List[Tuple[Part, List[Structure]]]:
        """Returns the arguments of an update for each part.

        Arguments of the variable's shape are cut. All others go to all parts.
        """
        cut = [self._cut(argument) for argument in args]
        return [(part, [pieces[index] for pieces in cut]) for index, part in enumerate(self.parts)]

    def _cut(self, argument: Structure) -> List[Structure]:
        rows = isinstance(argument, tf.IndexedSlices)
        if rows or (isinstance(argument, tf.Tensor) and self.shape.rank and argument.shape == self.shape):
            return [piece for _, piece in self.pieces(argument)]
        return [argument] * len(self.parts)

    def _write(self, how: str, value: TensorLike, use_locking: Optional[bool]) -> ServerVariable:
        value = tf.convert_to_tensor(value, self.dtype)
        self.shape.assert_is_compatible_with(value.shape)
        if self.is_learning_rate and tf.executing_eagerly() and self._strategy.extended.leaves_rates_to_first:
            return self
        if not self.is_added_to and running_update() is None:
            self.is_added_to = how != "assign" or any(each is self for each in kept_in(value))
        return self._change(how, value, {"use_locking": use_locking})

    def _scatter(self, how: str, slices: tf.IndexedSlices) -> ServerVariable:
        if not isinstance(slices, tf.IndexedSlices):
            raise TypeError(f"{how} of {self.name} takes IndexedSlices; got {slices!r}")
        values, indices = (
            tf.convert_to_tensor(slices.values, self.dtype),
            tf.convert_to_tensor(slices.indices),
        )
        return self._change(how, tf.IndexedSlices(values, indices, slices.dense_shape), {})

    def _change(self, how: str, value: TensorOrSlices, kwargs: Kwargs) -> Union[ServerVariable, Fetch]:
        """Writes the value.

        In an update it returns the result of the part, whose operation legacy optimizers of Keras 2 use.
        """
        if running_update() is None:
            return self._changed(self._rule.write(self._access, self, how, value, kwargs))
        (written,) = self._access.write(self, how, value, kwargs)
        return written

    def _changed(self, results: Sequence[Fetch]) -> Union[ServerVariable, Fetch]:
        """Returns the result of `assign` and similar methods, given the results of the parts."""
        del results
        return self

    def _trains_with_reads(self) -> bool:
        """Returns True if gradients with respect to the current read will be computed."""
        return self.trainable and compat.is_differentiating()

    def _recorded(
        self, forward: Callable[[], tf.Tensor], backward: Callable[[tf.Tensor], TensorOrSlices]
    ) -> tf.Tensor:
        """Returns `forward()`, which reads from the servers, and records it on tapes as a read of this variable."""
        self._rule.is_read(self)
        value = compat.record_read(self, forward, backward)
        if not self.trainable:
            note_read(value, self)
        self._strategy.extended.steps.note_value(value, self)
        return value

    def _part_in_update(self) -> Optional[Part]:
        update = running_update()
        if update is None:
            return None
        return self.parts[update.part if len(self.parts) > 1 else 0]

    def _targets(self) -> Sequence[Part]:
        part = self._part_in_update()
        return self.parts if part is None else (part,)

    def _serialize_to_tensors(self):
        return {"VARIABLE_VALUE": self.read_value()}

    def _restore_from_tensors(self, restored_tensors):
        return self.assign(restored_tensors["VARIABLE_VALUE"])

    def __tf_tracing_type__(self, signature_context):
        """Returns the type of this variable alone.

        A function is traced for the parts of one variable, and again for each other variable.
        """
        signature_context.add_placeholder(self._number, self)
        return compat.VariableSpec(
            shape=self.shape, dtype=self.dtype, trainable=self.trainable, alias_id=self._number
        )

    def __deepcopy__(self, memo):
        raise NotImplementedError(
            f"{self.name} lives on parameter servers; copy its value: tf.Variable({self.name!r}.numpy())"
        )
