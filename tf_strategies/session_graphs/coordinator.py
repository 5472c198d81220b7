"""TensorFlow's distribute coordinator, which carries out Estimator's `train_and_evaluate`: what it leaves to our strategies.

It knows the cluster from TF_CONFIG, as the strategies do, and would start a server of its own and copy the strategy; they
have formed their cluster already.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Iterator

import tensorflow as tf

from tf_strategies._tf import compat

__all__ = [
    "CarriedError",
    "Coordinated",
    "carried_through",
    "in_session_graph",
    "is_coordinated",
    "make_sessions_with",
]


class Coordinated:
    """A strategy of which there is one: where the coordinator or a RunConfig copies it, it stays the same."""

    def __deepcopy__(self, memo: Any) -> Coordinated:
        del memo
        return self


def make_sessions_with(make_creator: Callable) -> None:
    """Has the coordinator that runs on this thread, if one does, make sessions as this strategy needs them.

    Args:
        make_creator: called as `make_creator(scaffold, config=..., checkpoint_dir=..., max_wait_secs=..., ...)`; returns a
            tf.compat.v1.train.SessionCreator.
    """
    context = compat.coordinator_context()
    if context is not None:
        context.session_creator = make_creator


class CarriedError(Exception):
    """Takes an error through a monitored session, which has a new session made for ever where a process is not available."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@contextlib.contextmanager
def carried_through() -> Iterator[None]:
    """Raises the errors that were carried through monitored sessions."""
    try:
        yield
    except CarriedError as carrier:
        raise carrier.error from None


def is_coordinated() -> bool:
    """Returns True if TensorFlow's coordinator runs on this thread, as in `tf.estimator.train_and_evaluate` with a cluster."""
    return compat.coordinator_context() is not None


def in_session_graph() -> bool:
    """Returns True if the current graph is one that a session runs, such as Estimator's.

    It is False in a tf.function and in eager code.
    """
    return not tf.compat.v1.executing_eagerly_outside_functions()
