"""Members of the ledger: who trains, and which step it is."""

from __future__ import annotations

from typing import Sequence

import tensorflow as tf

from tf_strategies.native.ledger.calls import Caller, Integer, names_of, run, run_apart

__all__ = ["agree", "enter", "join", "leave", "set_step", "step"]


def join(caller: Caller, *, names: Sequence[str], options: str) -> tf.Tensor:
    """Makes this process the worker `caller.worker`, training; a former process of it is replaced, its calls end.

    The first that joins fixes `names` and `options`; the others must bring the same. The same process may join again.

    Args:
        caller: the joining process.
        names: of all workers, one line each: "worker 1 (10.0.0.2:2222)".
        options: what must be the same on every worker, as text.

    Returns:
        Scalar int64: the current step.

    Raises:
        tf.errors.InvalidArgumentError: another worker joined with other names or options; both are named.
    """
    return run_apart(
        "join",
        **names_of(caller),
        size=len(names),
        names=list(names),
        options=options,
    )


def agree(caller: Caller, key: str | tf.Tensor, text: str | tf.Tensor) -> tf.Tensor:
    """Fails unless every worker brings the same text for the key. The first that comes stays.

    Returns:
        Scalar int64: the current step.

    Raises:
        tf.errors.InvalidArgumentError: another worker brought another text; both are named.
        tf.errors.ResourceExhaustedError: more than 65,536 keys, or 64 MiB of keys and texts.
    """
    return run_apart("agree", **names_of(caller), key=key, text=text)


def leave(caller: Caller, *, finished: bool) -> tf.Tensor:
    """Says that this process trains no more: for good, or until its next fit.

    What it waits for elsewhere ends with AbortedError, a submission of it that has not counted yet is dropped, and
    what it was to apply falls to another worker.

    Returns:
        Scalar int64: the current step.
    """
    return run_apart("leave", **names_of(caller), finished=finished)


def enter(caller: Caller, generation: Integer, *, timeout: float) -> tf.Tensor:
    """Begins a fit: waits until every worker that is neither finished nor lost has entered this generation or a later one.

    Also waits while a step is being applied. Meanwhile the others do not count on the caller. A wait that fails leaves it idle.

    Args:
        caller: this process.
        generation: which fit, from 1, never less than before.
        timeout: in seconds; 0 does not wait.

    Returns:
        Scalar int64: the current step.

    Raises:
        tf.errors.DeadlineExceededError: names those that are awaited.
    """
    return run_apart("enter", **names_of(caller), generation=generation, timeout=timeout)


def step(ledger: str) -> tf.Tensor:
    """Returns how many updates have been applied, from the step that was set: scalar int64."""
    return run("step", ledger=ledger)


def set_step(ledger: str, value: Integer) -> tf.Tensor:
    """Sets the step, as after restoring a checkpoint.

    Returns:
        Scalar int64: the same.

    Raises:
        tf.errors.FailedPreconditionError: gradients are pending.
    """
    return run("set_step", step=value, ledger=ledger)
