"""The common base of the calls: checks and compares them before values are sent."""

from __future__ import annotations

from typing import Callable, ContextManager, List, TypeVar

from tf_strategies.collective.calls.rendezvous import rendezvous_of
from tf_strategies.collective.worker_group import WorkerGroup
from tf_strategies.types import Json, JsonObject, Unchecked

__all__ = ["Calls"]

_T = TypeVar("_T")


class Calls:
    """Makes calls to the workers of a group."""

    _group: WorkerGroup

    def _prepare(self, call: str, function: Callable[[], _T]) -> _T:
        """Returns the result of a function that checks the arguments; see `Rendezvous.prepare`."""
        rendezvous = rendezvous_of(self._group)
        rendezvous.require_possible(call)
        return rendezvous.prepare(call, function)

    def _meet(self, call: str, **note: Json) -> List[JsonObject]:
        """Does the same as `Rendezvous.meet`."""
        return rendezvous_of(self._group).meet(call, **note)

    def _sending(self, call: str) -> ContextManager[None]:
        """Does the same as `Rendezvous.sending`."""
        return rendezvous_of(self._group).sending(call)

    def _checked_root(self, root: Unchecked) -> int:
        if type(root) is not int or not 0 <= root < self._group.size:
            raise ValueError(f"a rank must be a whole number from 0 to {self._group.size - 1}; got {root!r}")
        return root
