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
    """Holds the staleness of all pushed gradients, as int64 tensors.

    Attributes:
        histogram: [256] the number of updates by staleness. The last entry counts all values from 255.
        count: the number of updates.
        total: the sum of all staleness values.
        maximum: the greatest staleness.
    """

    histogram: tf.Tensor
    count: tf.Tensor
    total: tf.Tensor
    maximum: tf.Tensor


def pull(caller: Caller, *, max_staleness: Integer = UNBOUNDED, timeout: float) -> tf.Tensor:
    """Waits until this worker may read the weights.

    The clock of a worker is the number of its pushes. It may be at most `max_staleness` ahead of the clock of
    the slowest worker that trains. A worker that joins or returns starts with the clock of the slowest
    worker. Workers that have not joined yet count with clock 0 for the first 60 seconds of the ledger, or for
    half of `timeout` if that is less.

    Args:
        caller: this process. An idle worker counts as training from now on.
        max_staleness: the number of updates; UNBOUNDED never waits.
        timeout: in seconds.

    Returns:
        Scalar int64: the number of applied updates, to pass to `push`.

    Raises:
        tf.errors.DeadlineExceededError: the wait took too long. The message names the awaited workers.
    """
    return run_apart("pull", **names_of(caller), max_staleness=max_staleness, timeout=timeout)


def push(caller: Caller, pulled: Integer) -> tf.Tensor:
    """Counts one update.

    Args:
        caller: this process.
        pulled: the result of `pull` before the weights were read.

    Returns:
        Scalar int64: the staleness, which is the number of updates by all workers since then.
    """
    return run("push", **names_of(caller), pulled=pulled)


def staleness(ledger: str) -> Staleness:
    """Returns the staleness of all pushed gradients."""
    return Staleness(*run("staleness", ledger=ledger))
