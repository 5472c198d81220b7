"""Operations for the members of a ledger: join, leave, and the number of the step."""

from __future__ import annotations

from typing import NamedTuple, Sequence

import tensorflow as tf

from tf_strategies.native.ledger.calls import Caller, Integer, names_of, run, run_apart

__all__ = ["RollBack", "agree", "enter", "join", "leave", "roll_back", "set_step", "step"]


class RollBack(NamedTuple):
    """Holds the result of `roll_back`.

    Attributes:
        next: scalar int64, the first update that `run_once` runs on this server from now on.
        idle: scalar bool, whether `run_once` runs nothing on this server at this moment.
    """

    next: tf.Tensor
    idle: tf.Tensor


def join(caller: Caller, *, names: Sequence[str], options: str) -> tf.Tensor:
    """Makes this process the worker `caller.worker`, which trains from now on.

    It replaces an earlier process of this worker, whose calls end. The first worker that joins sets `names` and
    `options`. Other workers must have the same. A process may join again.

    Args:
        caller: the joining process.
        names: the names of all workers, one on each line, such as "worker 1 (10.0.0.2:2222)".
        options: the options that must be equal on all workers, as text.

    Returns:
        Scalar int64: the current step.

    Raises:
        tf.errors.InvalidArgumentError: another worker joined with different names or options. The message
            shows both.
    """
    return run_apart(
        "join",
        **names_of(caller),
        size=len(names),
        names=list(names),
        options=options,
    )


def agree(caller: Caller, key: str | tf.Tensor, text: str | tf.Tensor) -> tf.Tensor:
    """Fails if workers have different texts for a key. The first text is kept.

    Args:
        caller: this process.
        key: the key.
        text: the text of this worker.

    Returns:
        Scalar int64: the current step.

    Raises:
        tf.errors.InvalidArgumentError: another worker has a different text. The message shows both.
        tf.errors.ResourceExhaustedError: more than 65,536 keys, or 64 MiB of keys and texts.
    """
    return run_apart("agree", **names_of(caller), key=key, text=text)


def leave(caller: Caller, *, finished: bool) -> tf.Tensor:
    """Reports that this process has stopped training, finally or until its next fit.

    Its waiting calls end with AbortedError. Its submission is dropped if it has not counted yet. If it had to
    apply a step, another worker applies it.

    Args:
        caller: this process.
        finished: whether it stops finally.

    Returns:
        Scalar int64: the current step.
    """
    return run_apart("leave", **names_of(caller), finished=finished)


def enter(caller: Caller, generation: Integer, *, timeout: float) -> tf.Tensor:
    """Begins a fit: waits until every worker that is neither finished nor lost has entered it or a later one.

    It also waits while a step is being applied. Meanwhile other workers do not wait for the caller. After a
    failed wait the caller is idle.

    Args:
        caller: this process.
        generation: the number of the fit, from 1. It must not decrease.
        timeout: the number of seconds to wait; 0 does not wait.

    Returns:
        Scalar int64: the current step.

    Raises:
        tf.errors.DeadlineExceededError: the wait took too long. The message names the awaited workers.
    """
    return run_apart("enter", **names_of(caller), generation=generation, timeout=timeout)


def step(ledger: str) -> tf.Tensor:
    """Returns the number of the step, which counts the applied updates: scalar int64."""
    return run("step", ledger=ledger)


def set_step(ledger: str, value: Integer) -> tf.Tensor:
    """Sets the step, for example after a checkpoint was restored.

    Args:
        ledger: the name of the ledger.
        value: the step.

    Returns:
        Scalar int64: the new step.

    Raises:
        tf.errors.FailedPreconditionError: gradients are pending.
    """
    return run("set_step", step=value, ledger=ledger)


def roll_back(ledger: str, step: Integer, first: Integer) -> RollBack:
    """Returns a server to an earlier step, before its variables are set to a copy of that step.

    Waiting submissions end with AbortedError, a step that is being applied is abandoned, and all gradients are
    discarded. From now on `run_once` fails for earlier updates. It does not wait: call it again until the server is
    idle, because a part of an earlier update may still be running. It ends `ledger_core.hold`.

    Args:
        ledger: the name of the ledger.
        step: the step to return to.
        first: the first update that `run_once` may run from now on, from `roll_back` on the server whose ledger counts
            the steps. There it is -1: the next update of this ledger.
    """
    return RollBack(*run("roll_back", step=step, first=first, ledger=ledger))
