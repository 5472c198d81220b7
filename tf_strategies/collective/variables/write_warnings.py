"""Warns of variables that a replica function writes in a way that does not give what one process would have."""

from __future__ import annotations

import logging
from typing import Any, Callable, Iterable, Optional, Set

import tensorflow as tf

from tf_strategies.collective.variables.written_variables import Write, WrittenVariables
from tf_strategies.types import Result

__all__ = ["WriteWarnings"]

_log = logging.getLogger("tf_strategies")


class WriteWarnings:
    """Looks at the operations by which a replica function writes variables.

    Args:
        variables: returns the variables to look at.
        fault: returns the operation type that makes a write wrong, or None.
        message: of the warning, with places for the name of the variable, the operation type and the number of replicas.
        replicas: returns the number of all replicas.
        is_first: returns whether this worker is the one that warns.
    """

    def __init__(
        self,
        *,
        variables: Callable[[], Iterable[tf.Variable]],
        fault: Callable[[Write], Optional[str]],
        message: str,
        replicas: Callable[[], int],
        is_first: Callable[[], bool],
    ) -> None:
        self._variables, self._fault, self._message = variables, fault, message
        self._replicas, self._is_first = replicas, is_first
        self._warned: Set[str] = set()

    def watch(self, fn: Callable[..., Result]) -> Callable[..., Result]:
        """Returns the replica function `fn`, which warns when it is traced. Eagerly there is nothing to look at."""
        if not self._is_first() or tf.executing_eagerly():
            return fn

        @tf.autograph.experimental.do_not_convert
        def watched(*args: Any, **kwargs: Any) -> Result:
            written = WrittenVariables()
            result = fn(*args, **kwargs)
            variables = list(self._variables())
            for write in written.writes(variables) if variables else ():
                fault = self._fault(write)
                if fault is not None:
                    self._warn(write.variable, fault)
            return result

        return watched

    def _warn(self, variable: tf.Variable, fault: str) -> None:
        name = variable.name.partition(":")[0]
        if name not in self._warned:
            self._warned.add(name)
            _log.warning(self._message, name, fault, self._replicas())
