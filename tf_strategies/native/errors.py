"""Defines WorkerLostError, the error of collectives that fail because a worker is lost."""

from __future__ import annotations

import contextlib
from typing import Callable, Iterator

import tensorflow as tf

__all__ = ["WorkerLostError", "naming_lost_workers"]

# TensorFlow raises UNAVAILABLE on all other workers when a worker is lost, in `fit` and elsewhere. This is
# the same class, so both names catch it. The message names the worker and its address.
WorkerLostError = tf.errors.UnavailableError

# A subclass with our name, for tracebacks and logs. Both names catch it.
_Named = type("WorkerLostError", (tf.errors.UnavailableError,), {"__module__": "tf_strategies"})


@contextlib.contextmanager
def naming_lost_workers(is_broken: Callable[[], bool], why: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Converts an UnavailableError that leaves the block to a WorkerLostError.

    Args:
        is_broken: returns True if the group has failed, so that the error is a consequence.
        why: returns the reason of the failure, or "". Survivors that form a group again close the one that has failed, and its
            collectives then say only that it does not exist.
    """
    try:
        yield
    except tf.errors.CancelledError as error:
        if not why():
            raise
        raise _Named(error.node_def, error.op, why()) from error
    except tf.errors.UnavailableError as error:
        if type(error) is tf.errors.UnavailableError and is_broken():
            error.__class__ = _Named
        raise
