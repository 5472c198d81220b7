"""How a benchmark ends before its time: with all that it has started."""

from __future__ import annotations

import ctypes
import signal
import sys

__all__ = ["at_sigterm", "with_parent"]

_PR_SET_PDEATHSIG = 1


def with_parent() -> None:
    """In a process just forked: it is killed when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def at_sigterm() -> None:
    """SIGTERM ends this process as an exception does: `with` and `finally` clear up."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
