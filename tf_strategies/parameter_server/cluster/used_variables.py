"""Knows what a worker uses on one server, so that the server copies it, and the worker finds it again after a loss."""

from __future__ import annotations

import time
import weakref
from typing import Dict, Iterator, List, Optional, Set, Tuple

import tensorflow as tf

from tf_strategies.parameter_server.cluster.variable_lists import Kind, describe
from tf_strategies.types import TensorLike

__all__ = ["UsedVariables"]

_COPIED_WITHIN_SECONDS = 60.0


class UsedVariables:
    """Knows the variables of a server that this worker uses.

    Attributes:
        kinds: the kind of each, by name.
        list: the variable that lists them on the server; None before there are any.
        has_further: whether some are not in the list yet.
    """

    def __init__(self) -> None:
        self.kinds: Dict[str, Kind] = {}
        self.list: Optional[tf.Variable] = None
        self.has_further = False
        self._of_model: Set[str] = set()
        self._with_value: Set[str] = set()
        self._initial: Dict[str, Tuple[float, tf.Tensor]] = {}
        self._variables: Dict[str, weakref.ref[tf.Variable]] = {}
        self._written: Dict[int, Tuple[weakref.ref[tf.Variable], TensorLike]] = {}

    def note_of_model(self, name: str) -> None:
        """Notes that the variable of this name, which will be added, belongs to a model."""
        self._of_model.add(name)

    def add(self, name: str, variable: tf.Variable) -> None:
        self.has_further = self.has_further or name not in self.kinds
        self.kinds[name] = Kind.of(variable.dtype, variable.shape, is_of_model=name in self._of_model)
        self._variables[name] = weakref.ref(variable)

    def note_value(self, name: str, initial: tf.Tensor) -> None:
        """Notes that a variable has a value from now on. The first one is held until copies of the server must have it."""
        now = time.monotonic()
        recent = {key: each for key, each in self._initial.items() if now - each[0] < _COPIED_WITHIN_SECONDS}
        self._initial = {**recent, name: (now, initial)}
        self._with_value.add(name)

    def note_entry(self, variable: tf.Variable, value: TensorLike) -> None:
        """Notes what this worker tells the others in a variable that no other worker writes."""
        self._written = {key: each for key, each in self._written.items() if each[0]() is not None}
        self._written[id(variable)] = weakref.ref(variable), value

    def write_entries(self) -> None:
        """Writes again what this worker has told the others: the server may have come back without the newest."""
        for reference, value in self._written.values():
            variable = reference()
            if variable is not None:
                variable.assign(value)

    def alive(self) -> Iterator[Tuple[str, tf.Variable]]:
        """Yields the name and the object of each variable that is still used."""
        for name, reference in self._variables.items():
            variable = reference()
            if variable is not None:
                yield name, variable

    def has_come_back(self) -> bool:
        """Returns True if the server has the variables that had values, but for those that can be made again."""
        if self.list is not None and not self.list.is_initialized():
            return False
        return all(name in self._initial for name, _ in self._without_value())

    def lost_recently_made(self) -> List[Tuple[str, tf.Variable, tf.Tensor]]:
        """Returns the variables that were made after the copy of the server: the name, the object, and the first value."""
        return [(name, variable, self._initial[name][1]) for name, variable in self._without_value()]

    def _without_value(self) -> List[Tuple[str, tf.Variable]]:
        expected = [(name, variable) for name, variable in self.alive() if name in self._with_value]
        return [(name, variable) for name, variable in expected if not variable.is_initialized()]

    def described(self) -> str:
        return describe(self.kinds)
