"""The error of a failing collective, under this package's name for it."""

from __future__ import annotations

import contextlib
from typing import Callable, Iterator

import tensorflow as tf

__all__ = ["WorkerLostError", "naming_lost_workers"]

# A lost worker ends the collectives of all survivors with UNAVAILABLE, which TensorFlow raises, inside `fit` as elsewhere:
# the same class, so that either name catches it. The message names the worker, its address and what is known.
WorkerLostError = tf.errors.UnavailableError

# The same error under this package's name, in tracebacks and logs. A subclass, which both names catch as well.
_Named = type("WorkerLostError", (tf.errors.UnavailableError,), {"__module__": "tf_strategies"})


@contextlib.contextmanager
def naming_lost_workers(is_broken: Callable[[], bool]) -> Iterator[None]:
    """Shows an UnavailableError that leaves the block as a WorkerLostError.

    Args:
        is_broken: whether the group has failed, and the error tells why.
    """
    try:
        yield
    except tf.errors.UnavailableError as error:
        if type(error) is tf.errors.UnavailableError and is_broken():
            error.__class__ = _Named
        raise
