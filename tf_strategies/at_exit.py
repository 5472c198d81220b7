"""Runs functions when the interpreter of this process ends, but not in a forked child, which does not own the connections."""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import os
from typing import Callable, Set

__all__ = ["end_quickly", "register", "unregister"]

_registered: Set[Callable[[], object]] = set()


def register(function: Callable[[], object]) -> None:
    """Does the same as `atexit.register`."""
    atexit.register(function)
    _registered.add(function)


def unregister(function: Callable[[], object]) -> None:
    """Does the same as `atexit.unregister`."""
    atexit.unregister(function)
    _registered.discard(function)


def end_quickly() -> None:
    """Lets the interpreter end without its last garbage collections, for a process whose training has failed.

    Those take seconds with TensorFlow loaded, while others wait for this process to end. Open files are written out first, for
    nothing else does that for a file that only garbage refers to.
    """
    for each in gc.get_objects():
        if issubclass(type(each), (io.TextIOBase, io.BufferedIOBase)):
            with contextlib.suppress(Exception):  # it is closed, or the disk is full
                each.flush()
    gc.freeze()


def _leave_it_to_the_parent() -> None:
    for function in list(_registered):
        unregister(function)


os.register_at_fork(after_in_child=_leave_it_to_the_parent)
