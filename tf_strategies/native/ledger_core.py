"""Wraps the C functions of ops/ledger/c_api.h, with which a server reads and changes its ledgers."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import List

from tf_strategies.native import c_text, loader
from tf_strategies.texts import utf8


@dataclasses.dataclass(frozen=True)
class Member:
    """Describes a worker of a ledger.

    Attributes:
        name: "worker 1 (10.0.0.2:2222)".
        status: "expected" (has not joined), "training", "idle" (between two fits), "finished" or "lost".
        incarnation: the incarnation of its current process; 0 before it has joined.
    """

    name: str
    status: str
    incarnation: int


def names() -> List[str]:
    """Returns the names of the ledgers of this process."""
    return (c_text.read(_core().tfs_ledger_names) or b"").decode(errors="replace").splitlines()


def members(ledger: str) -> List[Member]:
    """Returns the workers of a ledger of this process. There are none before the first worker has joined.

    Raises:
        KeyError: this process has no such ledger.
    """
    text = c_text.read(_core().tfs_ledger_members, utf8(ledger))
    if text is None:
        raise KeyError(ledger)
    found = []
    for line in text.decode(errors="replace").split("\n")[:-1]:
        status, incarnation, name = line.split(" ", 2)
        found.append(Member(name, status, int(incarnation)))
    return found


def mark_lost(ledger: str, worker: int, incarnation: int) -> bool:
    """Declares a worker lost, and ends all waits for it.

    Args:
        ledger: the name of a ledger of this process.
        worker: the number of the worker.
        incarnation: the incarnation of the lost process; 0 if it never joined.

    Returns:
        False if a new process has replaced the worker, or it has finished, or was already lost.

    Raises:
        KeyError: this process has no such ledger.
    """
    return _known(ledger, _core().tfs_ledger_mark_lost(utf8(ledger), worker, ctypes.c_int64(incarnation)))


def hold(ledger: str) -> bool:
    """Tells no worker to begin to apply a step until `release`, or until the ledger is rolled back.

    Args:
        ledger: the name of a ledger of this process.

    Returns:
        True if no step is being applied. If it is False, call it again: a step whose application has begun is
        applied to its end, if need be by another worker.

    Raises:
        KeyError: this process has no such ledger.
    """
    return _known(ledger, _core().tfs_ledger_hold(utf8(ledger)))


def release(ledger: str) -> None:
    """Ends what `hold` began, and lets the workers apply what is complete.

    Args:
        ledger: the name of a ledger of this process.

    Raises:
        KeyError: this process has no such ledger.
    """
    _known(ledger, _core().tfs_ledger_release(utf8(ledger)))


def _known(ledger: str, found: int) -> bool:
    """Returns a result, or raises KeyError if it says that there is no such ledger."""
    if found < 0:
        raise KeyError(ledger)
    return bool(found)


def _core() -> ctypes.CDLL:
    core = loader.core()
    for name in ("tfs_ledger_names", "tfs_ledger_members"):
        getattr(core, name).restype = ctypes.c_int64
    return core
