"""Makes errors end training, where a MonitoredSession would make a new session and continue.

A MonitoredSession treats UnavailableError and AbortedError as the restart of a parameter server. A group that
lost a worker cannot recover.
"""

from __future__ import annotations

import contextlib
from typing import Any, Iterator

import tensorflow as tf

from tf_strategies.session_graphs.coordinator import CarriedError
from tf_strategies.types import Structure

__all__ = ["final_errors", "with_final_errors"]


@contextlib.contextmanager
def final_errors() -> Iterator[None]:
    """Opens a context in which a MonitoredSession does not recover from errors.

    `carried_through` raises the original errors.
    """
    try:
        yield
    except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
        raise CarriedError(error) from error


def with_final_errors(session: tf.compat.v1.Session) -> tf.compat.v1.Session:
    """Returns the session. Its `run` raises errors as within `final_errors`."""
    run = session.run

    def run_or_end(*args: Any, **kwargs: Any) -> Structure:
        with final_errors():
            return run(*args, **kwargs)

    session.run = run_or_end
    return session
