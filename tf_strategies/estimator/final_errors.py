"""Errors that end training, where a MonitoredSession would make a new session and go on.

It takes UnavailableError and AbortedError for a parameter server that restarts. A group that lost a worker does not come back.
"""

from __future__ import annotations

import contextlib
from typing import Any, ContextManager, Iterator

import tensorflow as tf

from tf_strategies.estimator.coordinator import CarriedError

__all__ = ["ShowsFinalErrors", "final_errors", "with_final_errors"]


@contextlib.contextmanager
def final_errors() -> Iterator[None]:
    """Within, errors that a MonitoredSession would recover from pass it; `ShowsFinalErrors` shows them as they were."""
    try:
        yield
    except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
        raise CarriedError(error) from error


def with_final_errors(session: tf.compat.v1.Session) -> tf.compat.v1.Session:
    """The session, whose `run` raises as within `final_errors`."""
    run = session.run

    def run_or_end(*args: Any, **kwargs: Any) -> Any:
        with final_errors():
            return run(*args, **kwargs)

    session.run = run_or_end
    return session


class ShowsFinalErrors:
    """A context manager, out of which the errors within `final_errors` come as they were raised.

    Args:
        scope: the context manager in which sessions run.
    """

    def __init__(self, scope: ContextManager) -> None:
        self._scope = scope

    def __enter__(self) -> Any:
        return self._scope.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> Any:
        handled = self._scope.__exit__(kind, error, trace)
        if isinstance(error, CarriedError) and not handled:
            raise error.error from None
        return handled
