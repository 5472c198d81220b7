"""How a worker of a test tells what ended it."""

from __future__ import annotations

import time

import tf_strategies as tfs

__all__ = ["ended_with"]


def ended_with(error: Exception) -> int:
    """Prints on one line when the worker ended with which error, and whether that is a lost worker; returns its exit status."""
    lost = isinstance(error, tfs.WorkerLostError)
    text = " ".join(str(error).split())
    print(f"ended at {time.monotonic()} with {type(error).__name__} lost={lost}: {text}", flush=True)
    return 3
