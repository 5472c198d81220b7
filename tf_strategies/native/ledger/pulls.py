"""Asynchronous training: workers pull weights and push gradients.

References:
    Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter server".
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from tf_strategies.native.ledger.calls import Caller, Integer, names_of, run, run_apart

__all__ = ["UNBOUNDED", "Staleness", "pull", "push", "staleness"]

UNBOUNDED = -1


class Staleness(NamedTuple):
    """The staleness of the gradients that were pushed; all int64.

    Attributes:
        histogram: [256] updates by staleness; the last counts 255 or more.
        count: updates.
        total: the sum of their staleness.
        maximum: the greatest.
    """

    histogram: tf.Tensor
    count: tf.Tensor
    total: tf.Tensor
    maximum: tf.Tensor


def pull(caller: Caller, *, max_staleness: Integer = UNBOUNDED, timeout: float) -> tf.Tensor:
    """Waits until this worker may read the weights.

    That is while its clock, the number of its pushes, is at most `max_staleness` ahead of the slowest worker that trains.
    The clock of a worker that joins or comes back begins where the slowest is. Workers that have not joined yet hold the
    others back, as if at clock 0, for the first 60 seconds of the ledger, or half of `timeout` if that is less.

    Args:
        caller: this process; when idle, it trains from now on.
        max_staleness: in updates; UNBOUNDED never waits.
        timeout: in seconds.

    Returns:
        Scalar int64: how many updates have been applied, for `push`.

    Raises:
        tf.errors.DeadlineExceededError: names those that are awaited.
    """
    return run_apart("pull", **names_of(caller), max_staleness=max_staleness, timeout=timeout)


def push(caller: Caller, pulled: Integer) -> tf.Tensor:
    """Counts one update.

    Args:
        caller: this process.
        pulled: what `pull` returned before the weights were read.

    Returns:
        Scalar int64: the staleness, the updates by anybody since.
    """
    return run("push", **names_of(caller), pulled=pulled)


def staleness(ledger: str) -> Staleness:
    """Returns the staleness of the gradients that were pushed."""
    return Staleness(*run("staleness", ledger=ledger))
