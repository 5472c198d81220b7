"""Synchronous training: workers submit gradients, and one of them applies those that count.

References:
    Chen et al. 2016, "Revisiting distributed synchronous SGD".
"""

from __future__ import annotations

import enum
from typing import NamedTuple, Sequence

import tensorflow as tf

from tf_strategies.native.ledger.calls import Caller, Integer, names_of, run, run_apart

__all__ = ["Counts", "Decision", "Submission", "applied", "counts", "run_once", "submit", "submitters"]


class Decision(enum.IntEnum):
    """Lists the possible results of a submission."""

    DROPPED = 0
    COUNTED = 1
    APPLY = 2


class Submission(NamedTuple):
    """Holds the result of `submit`.

    Attributes:
        decision: scalar int32, a `Decision`. DROPPED: it was too late to count. COUNTED: it counted, and another
            worker has applied it. APPLY: the caller must apply the gradients of `members` for `step` and then
            call `applied`. If the worker that had to apply the step was lost, the caller may not be a member,
            and some weights may already be written. `run_once` runs each part of an update only once.
        step: scalar int64, the current step; with APPLY the step to apply.
        members: [m] int32, ascending; empty without APPLY.
        rows: scalar int64, the number of rows of all members; 0 without APPLY.
        update: scalar int64, with APPLY the number of this update for `run_once`, equal for every worker that is told
            to apply it; otherwise -1.
    """

    decision: tf.Tensor
    step: tf.Tensor
    members: tf.Tensor
    rows: tf.Tensor
    update: tf.Tensor


class Counts(NamedTuple):
    """Holds the numbers of submissions of each worker, [size] int64, or [0] before a worker has joined.

    Attributes:
        dropped: the number of dropped submissions.
        counted: the number of counted submissions.
    """

    dropped: tf.Tensor
    counted: tf.Tensor


def submit(caller: Caller, step: Integer, *, rows: Integer, quorum: Integer, timeout: float) -> Submission:
    """Submits the gradients of a step, and waits until they are counted or dropped.

    The gradients must be accumulated already. The first `quorum` submissions for the current step count. If fewer
    workers are expected or training, their number is the quorum. The caller that completes the quorum is told to
    apply the step; the other callers that count wait until it has called `applied`. A submission that does not count
    returns at once or, while a step is being applied, after that.

    Args:
        caller: this process.
        step: the step at which the weights were read.
        rows: the number of input rows of the gradients, 0 to 2^40.
        quorum: the number of submissions in a step, from 1; the same on every worker.
        timeout: in seconds.

    Raises:
        tf.errors.DeadlineExceededError: the wait took too long. The message names the awaited workers. The
            submission is dropped, unless its step is being applied.
        tf.errors.FailedPreconditionError: the step is greater than the ledger's.
    """
    return Submission(
        *run_apart("submit", **names_of(caller), step=step, rows=rows, quorum=quorum, timeout=timeout)
    )


def applied(caller: Caller, step: Integer) -> tf.Tensor:
    """Reports that the step is applied, and begins the next one.

    Args:
        caller: this process.
        step: the applied step.

    Returns:
        Scalar int64: the next step.

    Raises:
        tf.errors.FailedPreconditionError: the caller is not the worker that was told to apply this step.
    """
    return run("applied", **names_of(caller), step=step)


def run_once(
    update: tf.Tensor, function: str, arguments: Sequence[tf.Tensor], *, ledger: str, part: int
) -> tf.Tensor:
    """Calls a function of the current graph on this server, unless it was already called for the same part of the same update.

    A call that has begun runs to its end, even if the worker that made it is lost. Other callers wait for
    this. A call that failed is not repeated for this update, because it may have written some variables.

    Args:
        update: the number of the update, from `submit`.
        function: the name of the function. It must have no results, and use only resources of this server.
        arguments: the arguments of the function.
        ledger: the name of the ledger.
        part: the number of the part, from 0. The parts of an update must ascend on each server.

    Returns:
        Scalar bool: whether the function was called now.

    Raises:
        tf.errors.FailedPreconditionError: an earlier call failed.
    """
    return run("run_once", update=update, arguments=list(arguments), f=function, part=part, ledger=ledger)


def counts(ledger: str) -> Counts:
    """Returns the numbers of dropped and counted submissions of each worker."""
    return Counts(*run("counts", ledger=ledger))


def submitters(ledger: str) -> tf.Tensor:
    """Returns the workers that have submitted for the current step: [m] int32, ascending."""
    return run("submitters", ledger=ledger)
