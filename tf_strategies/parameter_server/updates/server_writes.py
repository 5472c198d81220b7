"""Defines the interface by which updates write to servers."""

from __future__ import annotations

from typing import Iterable, List, Protocol, Tuple

from tf_strategies.parameter_server.updates.step import Step
from tf_strategies.parameter_server.variables.server_variable import ServerVariable
from tf_strategies.types import Kwargs, Structure, TensorOrSlices, Value

__all__ = ["ServerWrites"]


class ServerWrites(Protocol):
    """Sends values to servers and writes variables there. `ServerAccess` implements it."""

    def write(
        self, variable: ServerVariable, how: str, value: TensorOrSlices, kwargs: Kwargs
    ) -> List[Structure]:
        """Calls the method `how` of each part of the variable, or in an update of the part being updated.

        Returns the results.
        """

    def to_server(self, device: str, value: Value) -> Value:
        """Returns a tensor or IndexedSlices of this worker on a server, and other values unchanged."""

    def send_together(self, step: Step, values: Iterable[Tuple[str, object]]) -> None:
        """Sends the small tensors among these to their devices, in one message for each device."""
