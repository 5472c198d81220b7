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
    """Says what becomes of a submission."""

    DROPPED = 0
    COUNTED = 1
    APPLY = 2


class Submission(NamedTuple):
    """The result of `submit`.

    Attributes:
        decision: scalar int32, a `Decision`. DROPPED: too late to count. COUNTED: counted, and applied by another worker.
            APPLY: the caller is to apply the gradients of `members` for `step` and then to call `applied`. It may be no
            member itself, when the worker that was to apply is lost; some of the weights may then be written already: what is
            done by `once` is done for each update only once.
        step: scalar int64: the current step; with APPLY the one to apply.
        members: [m] int32, ascending; empty but for APPLY.
        rows: scalar int64: of all members; 0 but for APPLY.
        update: scalar int64: with APPLY the number of this update for `once`, the same for whoever is told to apply it; else -1.
    """

    decision: tf.Tensor
    step: tf.Tensor
    members: tf.Tensor
    rows: tf.Tensor
    update: tf.Tensor


class Counts(NamedTuple):
    """The numbers of dropped and counted submissions: [size] int64 each; [0] before a worker has joined."""

    dropped: tf.Tensor
    counted: tf.Tensor


def submit(caller: Caller, step: Integer, *, rows: Integer, quorum: Integer, timeout: float) -> Submission:
    """Submits the gradients of a step, which this worker has accumulated before, and waits until they are counted or dropped.

    The first `quorum` submissions for the current step count, or as many as there are workers expected or training if those
    are fewer. The one that completes them is told to apply; the others that count wait until it has called `applied`. A
    submission that does not count is answered at once, or when the step that is being applied has been, since the weights
    are being written.

    Args:
        caller: this process.
        step: at which the weights were read.
        rows: of input that the gradients stand for, 0 to 2^40.
        quorum: from 1; the same on every worker.
        timeout: in seconds.

    Raises:
        tf.errors.DeadlineExceededError: names the awaited workers. The submission is dropped, unless its step is being applied.
        tf.errors.FailedPreconditionError: the step lies ahead of the ledger's.
    """
    return Submission(
        *run_apart("submit", **names_of(caller), step=step, rows=rows, quorum=quorum, timeout=timeout)
    )


def applied(caller: Caller, step: Integer) -> tf.Tensor:
    """Says that the step is applied, and begins the next one.

    Returns:
        Scalar int64: the next step.

    Raises:
        tf.errors.FailedPreconditionError: the caller is not the worker that is to apply this step.
    """
    return run("applied", **names_of(caller), step=step)


def run_once(
    update: tf.Tensor, function: str, arguments: Sequence[tf.Tensor], *, ledger: str, part: int
) -> tf.Tensor:
    """Calls a function of the current graph on this server, unless it was called for the same part of the same update before.

    Once begun, it runs to its end, even if the worker that asked for it is lost. Whoever asks meanwhile waits for that.
    If it fails, it is not called again for this update: it may have done its work in part.

    Args:
        update: as `submit` numbered it.
        function: its name; it has no results, and all that it uses is on this server.
        arguments: of the function.
        ledger: its name.
        part: from 0; those of one update ascend on each server.

    Returns:
        Scalar bool: whether it was called now.

    Raises:
        tf.errors.FailedPreconditionError: it failed before.
    """
    return run("run_once", update=update, arguments=list(arguments), f=function, part=part, ledger=ledger)


def counts(ledger: str) -> Counts:
    """Returns how many submissions of each worker were dropped and counted."""
    return Counts(*run("counts", ledger=ledger))


def submitters(ledger: str) -> tf.Tensor:
    """Returns the workers that have submitted for the current step: [m] int32, ascending."""
    return run("submitters", ledger=ledger)
