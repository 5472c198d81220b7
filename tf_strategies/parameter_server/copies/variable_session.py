"""A session on a server that reads and assigns variables of any server by their names."""

from __future__ import annotations

from typing import Callable, Dict, Hashable, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

import tensorflow as tf
from absl import logging

from tf_strategies.parameter_server.cluster.variable_lists import TEXT, Kind
from tf_strategies.texts import utf8
from tf_strategies.types import Result, Structure, Unchecked

__all__ = ["Place", "Stored", "VariableSession"]

_RUN_SECONDS = 60.0


class Place(NamedTuple):
    """Says where variables are: a server, and the container of TensorFlow in it."""

    device: str
    container: str

    def variable(self, name: str, kind: Kind = TEXT) -> Stored:
        return Stored(self, name, kind)


class Stored(NamedTuple):
    """Identifies a variable of a server."""

    place: Place
    name: str
    kind: Kind


class VariableSession:
    """Runs operations on variables, without the Python objects of the workers.

    Args:
        target: the TensorFlow server of this process.
        devices: the servers whose variables are used.
    """

    def __init__(self, target: str, devices: Sequence[str]) -> None:
        self._graph = tf.Graph()
        config = tf.compat.v1.ConfigProto(
            device_filters=list(devices), operation_timeout_in_ms=int(1e3 * _RUN_SECONDS)
        )
        self._session = tf.compat.v1.Session(target, graph=self._graph, config=config)
        self._options = tf.compat.v1.RunOptions(timeout_in_ms=int(1e3 * _RUN_SECONDS))
        self._made: Dict[Hashable, Unchecked] = {}

    def __enter__(self) -> VariableSession:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        try:
            self._session.close()
        except tf.errors.OpError:
            logging.debug("a session with a lost server could not be closed")

    def with_values(self, variables: Iterable[Stored]) -> List[Stored]:
        """Returns those of the variables that have values."""
        asked = list(variables)

        def has_value(variable: Stored) -> tf.Tensor:
            return tf.raw_ops.VarIsInitializedOp(resource=self._handle(variable))

        flags = [self.once(("has value", each), each.place.device, has_value, each) for each in asked]
        return [each for each, has in zip(asked, self.run(flags)) if has]

    def assign(self, moves: Iterable[Tuple[Stored, Stored]]) -> None:
        """Gives each first variable the value of the second one. On the same server they share its memory."""

        def move(target: Stored, source: Stored) -> tf.Operation:
            with tf.device(source.place.device):
                value = self._read(source)
            return tf.raw_ops.AssignVariableOp(resource=self._handle(target), value=value)

        self.run([self.once(("move", to, come), to.place.device, move, to, come) for to, come in moves])

    def destroy(self, variables: Iterable[Stored]) -> None:
        """Makes variables have no value."""
        for variable in variables:
            handle = self._handle(variable)
            self.run_now(variable.place.device, tf.raw_ops.DestroyResourceOp, resource=handle)

    def texts(self, variables: Iterable[Stored]) -> Dict[Stored, bytes]:
        """Returns the values of those of the variables that hold texts and are not empty, in one run."""
        asked = list(variables)
        reads = [self.once(("text", each), each.place.device, self._text, each) for each in asked]
        return {each: text for each, text in zip(asked, self.run(reads)) if text}

    def set_texts(self, texts: Mapping[Stored, str]) -> None:
        """Sets variables that hold texts."""

        def assign(variable: Stored) -> Tuple[tf.Tensor, tf.Operation]:
            text = tf.compat.v1.placeholder(tf.string, [])
            return text, tf.raw_ops.AssignVariableOp(resource=self._handle(variable), value=text)

        made = [self.once(("set", each), each.place.device, assign, each) for each in texts]
        given = {placeholder: utf8(text) for (placeholder, _), text in zip(made, texts.values())}
        self._session.run([written for _, written in made], given, options=self._options)

    def once(self, key: Hashable, device: str, make: Callable[..., Result], *args: object) -> Result:
        """Returns what `make(*args)` has added to the graph, on a device, when it was first called for the key."""
        if key not in self._made:
            with self._graph.as_default(), tf.device(device):
                self._made[key] = make(*args)
        made: Result = self._made[key]
        return made

    def run(self, fetches: Sequence[object]) -> list:
        return self._session.run(list(fetches), options=self._options) if fetches else []

    def run_now(
        self, device: str, make: Callable[..., Structure], *args: object, **kwargs: object
    ) -> Unchecked:
        """Adds what `make` returns to the graph, on a device, and runs it."""
        with self._graph.as_default(), tf.device(device):
            made = make(*args, **kwargs)
        return self._session.run(made, options=self._options)

    def _read(self, variable: Stored) -> tf.Tensor:
        return tf.raw_ops.ReadVariableOp(
            resource=self._handle(variable), dtype=tf.as_dtype(variable.kind.dtype)
        )

    def _text(self, variable: Stored) -> tf.Tensor:
        """Returns the text of a variable, or "" if it has no value. A cond would be two functions, which take longer."""
        handle = self._handle(variable)
        has = tf.raw_ops.VarIsInitializedOp(resource=handle)
        _, with_value = tf.raw_ops.Switch(data=handle, pred=has)
        without, _ = tf.raw_ops.Switch(data=tf.constant(""), pred=has)
        text = tf.raw_ops.ReadVariableOp(resource=with_value, dtype=tf.string)
        return tf.raw_ops.Merge(inputs=[without, text]).output

    def _handle(self, variable: Stored) -> tf.Tensor:
        place, name, kind = variable

        def handle() -> tf.Tensor:
            return tf.raw_ops.VarHandleOp(
                dtype=tf.as_dtype(kind.dtype), shape=kind.shape, container=place.container, shared_name=name
            )

        return self.once(("handle", variable), place.device, handle)
