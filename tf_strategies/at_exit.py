"""What this process does when its interpreter ends; a child that it forks does not, for the connections are not the child's."""

from __future__ import annotations

import atexit
import os
from typing import Callable, Set

__all__ = ["register", "unregister"]

_registered: Set[Callable[[], object]] = set()


def register(function: Callable[[], object]) -> None:
    """As `atexit.register`."""
    atexit.register(function)
    _registered.add(function)


def unregister(function: Callable[[], object]) -> None:
    """As `atexit.unregister`."""
    atexit.unregister(function)
    _registered.discard(function)


def _leave_it_to_the_parent() -> None:
    for function in list(_registered):
        unregister(function)


os.register_at_fork(after_in_child=_leave_it_to_the_parent)
