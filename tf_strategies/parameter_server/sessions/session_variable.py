"""Implements server variables in a graph that a session runs, as with Estimator."""

from __future__ import annotations

import itertools
import weakref
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple, Union

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.parameter_server.cluster.servers import Servers
from tf_strategies.parameter_server.updates.step import current_step
from tf_strategies.parameter_server.variables.parts import Part
from tf_strategies.parameter_server.variables.server_variable import ServerVariable
from tf_strategies.session_graphs.side_thread import eagerly
from tf_strategies.types import Fetch, TensorOrSlices

__all__ = ["SessionVariable", "SessionVariables"]

_SET_BY_WARM_STARTS = ("_initial_value", "_initializer_op")


class SessionVariable(ServerVariable):
    """A `ServerVariable` for graphs of sessions: it works with `tf.gradients` and the optimizers of tf.compat.v1.

    Args:
        initial: its initial value.
        others: the arguments of `ServerVariable`.
    """

    casts_on_servers = False

    def __init__(self, parts: Sequence[Part], *, initial: tf.Tensor, **others: Any) -> None:
        super().__init__(parts, shape=initial.shape, dtype=initial.dtype, in_graph_mode=True, **others)
        self._initial = initial
        with tf.control_dependencies(None):
            read = [part.variable._graph_element for part in self.parts]
            self._graph_element = read[0] if len(read) == 1 else tf.concat(read, axis=0)

    @property
    def op(self):
        """The operation by which optimizers and savers identify the variable. It has the variable's name."""
        return self.parts[0].variable.op if len(self.parts) == 1 else self._handle.op

    @property
    def device(self) -> str:
        """The device where the value is used, and read from files."""
        return self._handle.device if self._part_in_update() is None else super().device

    @property
    def initializer(self):
        return tf.group([part.variable.initializer for part in self.parts])

    @property
    def initial_value(self):
        return self._initial

    def initialized_value(self):
        return tf.cond(self.is_initialized(), self.read_value, lambda: self._initial)

    def read_value(self):
        """Returns the value. In a branch the read runs only if the branch does.

        TensorFlow uses this to compute initial values of other variables.
        """
        if not tf.compat.v1.get_default_graph().building_function:
            return super().read_value()
        return self._recorded(self._fetch, lambda upstream: upstream)

    def _fetch(self) -> tf.Tensor:
        pieces = [part.on_server(part.variable.read_value) for part in self.parts]
        return pieces[0] if len(pieces) == 1 else tf.concat(pieces, axis=0)

    def __setattr__(self, name: str, value: object) -> None:
        """Sets the attributes of warm starts on the part, whose initializer runs."""
        if name in _SET_BY_WARM_STARTS and "_initial" in self.__dict__:
            (part,) = self.parts
            setattr(part.variable, name, value)
        super().__setattr__(name, value)

    def to_proto(self, export_scope=None):
        """Returns the entry for collections of a MetaGraphDef if the variable has one part.

        With several parts, only the parts are variables of the MetaGraphDef.
        """
        if len(self.parts) > 1:
            raise TypeError(f"{self.name} is in {len(self.parts)} parts")
        described = self.parts[0].variable.to_proto(export_scope)
        if described is not None:
            described.trainable = self.trainable
        return described

    def _serialize_to_tensors(self):
        with tf.device(self._handle.device):
            return {"VARIABLE_VALUE": tf.identity(self._graph_element)}

    def _restore_from_tensors(self, restored_tensors):
        """Restores the parts. The operations do not belong to a step."""
        pieces = self.pieces(restored_tensors["VARIABLE_VALUE"])
        return tf.group([part.variable.assign(piece) for part, piece in pieces])

    def _set_save_slice_info(self, save_slice_info):
        """Notes that this variable and its parts are slices of a larger one."""
        super()._set_save_slice_info(save_slice_info)
        for part in self.parts:
            offset = list(save_slice_info.var_offset)
            if offset:
                offset[0] += part.start
            part.variable._set_save_slice_info(
                tf.Variable.SaveSliceInfo(
                    save_slice_info.full_name,
                    save_slice_info.full_shape,
                    offset,
                    part.variable.shape.as_list(),
                )
            )

    def _read_variable_op(self, no_copy=False):
        """Reads the value at the beginning of the step, also for loops, whose gradients cannot use a handle."""
        step = current_step()
        if step is None or self._part_in_update() is not None:
            return super()._read_variable_op(no_copy)
        with step.outside_of_branches():
            return super()._read_variable_op(no_copy)

    def _trains_with_reads(self) -> bool:
        """Returns True, because gradients are computed later and may depend on any read."""
        return self.trainable

    def _recorded(
        self, forward: Callable[[], tf.Tensor], backward: Callable[[tf.Tensor], TensorOrSlices]
    ) -> tf.Tensor:
        """Returns the result of `forward`, connected to this variable's handle so that `tf.gradients` finds the variable."""

        @tf.custom_gradient
        def read(handle: tf.Tensor) -> Tuple[tf.Tensor, Callable[[tf.Tensor], TensorOrSlices]]:
            del handle
            return forward(), backward

        compat.variable_accessed(self)
        return read(self._handle)

    def _changed(self, results: Sequence[Fetch]) -> Union[SessionVariable, Fetch]:
        """Returns the result of `assign` and similar methods.

        This is a tensor that writes when a session runs it, or the variable itself if the write is postponed.
        """
        if not results:
            return self
        return results[0] if len(results) == 1 else tf.group(results)


class SessionVariables:
    """Makes the variables of graphs for sessions.

    Workers share variables that have the same name in their n-th graphs.

    Args:
        servers: the servers that hold the variables.
        place: returns the (server, rows) of each part, given name, shape, dtype and a variable to be placed
            with, or None.
    """

    def __init__(self, servers: Servers, place: Callable[..., Sequence[Tuple[int, int]]]) -> None:
        self._servers = servers
        self._place = place
        self._numbers: weakref.WeakKeyDictionary[tf.Graph, Tuple[int, Iterator[int]]] = (
            weakref.WeakKeyDictionary()
        )
        self._next = itertools.count()

    def make(
        self,
        initial_value: Callable[[], tf.Tensor],
        name: Optional[str],
        collections: Optional[Sequence[str]],
        beside: Optional[tf.Variable],
        **others: Any,
    ) -> SessionVariable:
        """Makes the next variable of the current graph.

        Args:
            initial_value: makes the initial value, on this worker.
            name: the name, which is made unique in the graph.
            collections: of the graph, where it is to be found; among the global variables are its parts.
            beside: a variable on whose servers it is to live.
            others: for SessionVariable.

        Raises:
            ValueError: the variable that another worker has made at this place is another.
        """
        with tf.init_scope(), tf.control_dependencies(None):
            graph = tf.compat.v1.get_default_graph()
            if graph not in self._numbers:
                self._numbers[graph] = next(self._next), itertools.count()
            number, count = self._numbers[graph]
            with tf.compat.v1.name_scope(name, "Variable") as scope:
                with tf.device(self._servers.device):
                    initial = initial_value()
                name = scope.rstrip("/")
                placed = self._place(name, initial.shape, initial.dtype, beside)
                what = f"variable {next(count)} of graph {number}"
                described = f"{name}: {initial.dtype.name}{initial.shape}, (server, rows) {placed}"
                eagerly(lambda: self._servers.agree(what, described))
                with graph.container(f"{self._servers.name}/graph {number}"):
                    parts = _parts(name, initial, placed, self._servers.devices)
                variable = SessionVariable(parts, initial=initial, name=name, **others)
            keys = tf.compat.v1.GraphKeys
            names = set(collections or ()) | ({keys.TRAINABLE_VARIABLES} if variable.trainable else set())
            graph.add_to_collections(names - {keys.GLOBAL_VARIABLES}, variable)
            return variable


def _parts(
    name: str, initial: tf.Tensor, placed: Sequence[Tuple[int, int]], devices: Sequence[str]
) -> List[Part]:
    """Variables of the graph, on servers; savers and initializers see these.

    Args:
        name: of the whole, unique in the graph.
        initial: its initial value.
        placed: (server, rows) of each part.
        devices: of the servers.
    """
    parts: List[Part] = []
    start = 0
    for server, rows in placed:
        alone = len(placed) == 1
        piece = initial if alone else initial[start : start + rows]
        with tf.device(devices[server]):
            part = compat.ResourceVariable(
                piece,
                trainable=False,
                collections=[tf.compat.v1.GraphKeys.GLOBAL_VARIABLES],
                name=f"{name}/" if alone else f"{name}/part_{len(parts)}/",
            )
        if not alone:
            offset = [start] + [0] * (initial.shape.rank - 1)
            part._set_save_slice_info(
                tf.Variable.SaveSliceInfo(name, initial.shape.as_list(), offset, part.shape.as_list())
            )
        parts.append(Part(part, devices[server], start, rows))
        start += rows
    return parts
