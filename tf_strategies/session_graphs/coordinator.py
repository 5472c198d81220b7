"""Works with TensorFlow's distribute coordinator, which runs Estimator's `train_and_evaluate`.

The coordinator reads TF_CONFIG, as the strategies do. It would start its own server and copy the strategy,
but the strategy has formed the cluster already.
"""

from __future__ import annotations

import contextlib
from typing import Callable, Dict, Iterator

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
    """A strategy that is not copied: when the coordinator or a RunConfig copies it, they get the same object."""

    def __deepcopy__(self, memo: Dict[int, object]) -> Coordinated:
        del memo
        return self


def make_sessions_with(make_creator: Callable[..., tf.compat.v1.train.SessionCreator]) -> None:
    """Makes the coordinator on this thread, if there is one, create sessions as this strategy needs them.

    Args:
        make_creator: called as `make_creator(scaffold, config=..., checkpoint_dir=..., max_wait_secs=..., ...)`; returns a
            tf.compat.v1.train.SessionCreator.
    """
    context = compat.coordinator_context()
    if context is not None:
        context.session_creator = make_creator


class CarriedError(Exception):
    """Carries an error through a monitored session, which would otherwise make new sessions without end."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


@contextlib.contextmanager
def carried_through() -> Iterator[None]:
    """Opens a context that raises the original errors that were carried through monitored sessions."""
    try:
        yield
    except CarriedError as carrier:
        raise carrier.error from None


def is_coordinated() -> bool:
    """Returns True if TensorFlow's coordinator runs on this thread, as in `tf.estimator.train_and_evaluate` with a cluster."""
    return compat.coordinator_context() is not None


def in_session_graph() -> bool:
    """Returns True if a session will run the current graph, as with Estimator.

    It is False in a tf.function and in eager code.
    """
    return not tf.compat.v1.executing_eagerly_outside_functions()
