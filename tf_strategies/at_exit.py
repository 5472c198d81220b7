"""Runs functions when this process ends.

A forked child does not run them, because it does not own the connections.
"""

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
    """Ends the interpreter without its last garbage collections, for a process whose training has failed.

    They take seconds when TensorFlow is loaded, and other processes wait for this one to end. Open files are
    flushed first: a file that only garbage refers to is not flushed by anything else.
    """
    for each in gc.get_objects():
        if issubclass(type(each), (io.TextIOBase, io.BufferedIOBase)):
            with contextlib.suppress(Exception):  # the file is closed, or the disk is full
                each.flush()
    gc.freeze()


def _leave_it_to_the_parent() -> None:
    for function in list(_registered):
        unregister(function)


os.register_at_fork(after_in_child=_leave_it_to_the_parent)
