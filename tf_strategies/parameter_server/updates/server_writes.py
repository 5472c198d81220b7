"""Defines what updates need to write to servers."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Protocol, Tuple

from tf_strategies.parameter_server.updates.step import Step
from tf_strategies.parameter_server.variables.server_variable import ServerVariable

__all__ = ["ServerWrites"]


class ServerWrites(Protocol):
    """Sends values to servers and writes variables there; `ServerAccess` does it."""

    def write(self, variable: ServerVariable, how: str, value: Any, kwargs: Dict[str, Any]) -> List[Any]:
        """Calls the method `how` of each part of the variable, or of the one that is updated, and returns the results."""

    def to_server(self, device: str, value: Any) -> Any:
        """Returns a tensor or IndexedSlices of this worker, on a server; anything else as it is."""

    def send_together(self, step: Step, values: Iterable[Tuple[str, Any]]) -> None:
        """Sends the small ones of these tensors to their devices, in one message for each device."""
