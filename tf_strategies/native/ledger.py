"""The ledger of a parameter server: who trains, which step it is, whose gradients count.

Every function that is an operation runs where it is placed, eagerly or in a tf.function, and works on the ledger of that name in
the process of that device: put it under `with tf.device("/job:ps/task:0")`. What a server's own Python asks is in `ledger_core`.

Called eagerly they return when they have run: TensorFlow alone would return before, and raise errors later and elsewhere.

A worker is known by its number and by its incarnation, a random integer that each process of it chooses once: `Caller`.
Calls that wait end with an error that names whom they waited for, or when the step they belong to is cancelled.

All operations raise (besides what each says):
    tf.errors.InvalidArgumentError: a value is out of range, or differs between workers.
    tf.errors.FailedPreconditionError: the worker has not joined here (the server was restarted), or has finished.
    tf.errors.AbortedError: a newer process has joined as this worker, or it was declared lost.

References:
    Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel parameter server" (pull, push).
    Chen et al. 2016, "Revisiting distributed synchronous SGD" (submit, applied).
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple, Union

import tensorflow as tf

from tf_strategies.native import loader

UNBOUNDED = -1
_DTYPES = {
    "worker": tf.int32,
    "incarnation": tf.int64,
    "size": tf.int32,
    "names": tf.string,
    "options": tf.string,
    "key": tf.string,
    "text": tf.string,
    "finished": tf.bool,
    "generation": tf.int64,
    "max_staleness": tf.int64,
    "step": tf.int64,
    "rows": tf.int64,
    "quorum": tf.int32,
    "timeout": tf.float64,
}

Integer = Union[int, tf.Tensor]
Shape = Union[tf.TensorShape, Sequence[Optional[int]]]
_Spec = Tuple[str, tf.DType, Tuple[int, ...]]


@dataclasses.dataclass(frozen=True)
class Caller:
    """The process that calls.

    Attributes:
        ledger: the name of the ledger.
        worker: its number.
        incarnation: tells this process from others of the same worker; any int64.
    """

    ledger: str
    worker: int
    incarnation: int


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


class Counts(NamedTuple):
    """The numbers of dropped and counted submissions: [size] int64 each; [0] before a worker has joined."""

    dropped: tf.Tensor
    counted: tf.Tensor


# --- members -----------------------------------------------------------------------------------------------------------------


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
    return _run_apart(
        "join",
        **_caller(caller),
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
    return _run_apart("agree", **_caller(caller), key=key, text=text)


def leave(caller: Caller, *, finished: bool) -> tf.Tensor:
    """Says that this process trains no more: for good, or until its next fit.

    What it waits for elsewhere ends with AbortedError, a submission of it that has not counted yet is dropped, and
    what it was to apply falls to another worker.

    Returns:
        Scalar int64: the current step.
    """
    return _run_apart("leave", **_caller(caller), finished=finished)


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
    return _run_apart("enter", **_caller(caller), generation=generation, timeout=timeout)


def step(ledger: str) -> tf.Tensor:
    """Returns how many updates have been applied, from the step that was set: scalar int64."""
    return _run("step", ledger=ledger)


def set_step(ledger: str, value: Integer) -> tf.Tensor:
    """Sets the step, as after restoring a checkpoint.

    Returns:
        Scalar int64: the same.

    Raises:
        tf.errors.FailedPreconditionError: gradients are pending.
    """
    return _run("set_step", step=value, ledger=ledger)


# --- asynchronous training ---------------------------------------------------------------------------------------------------


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
    return _run_apart("pull", **_caller(caller), max_staleness=max_staleness, timeout=timeout)


def push(caller: Caller, pulled: Integer) -> tf.Tensor:
    """Counts one update.

    Args:
        caller: this process.
        pulled: what `pull` returned before the weights were read.

    Returns:
        Scalar int64: the staleness, the updates by anybody since.
    """
    return _run("push", **_caller(caller), pulled=pulled)


def staleness(ledger: str) -> Staleness:
    """Returns the staleness of the gradients that were pushed."""
    return Staleness(*_run("staleness", ledger=ledger))


# --- synchronous training ----------------------------------------------------------------------------------------------------


def submit(caller: Caller, step: Integer, *, rows: Integer, quorum: Integer, timeout: float) -> Submission:
    """Submits the gradients of a step, which this worker has accumulated before, and waits until they are counted or dropped.

    The first `quorum` submissions for the current step count, or as many as there are workers expected or training if those
    are fewer. The one that completes them is told to apply; the others that count wait until it has called `applied`. An
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
        *_run_apart("submit", **_caller(caller), step=step, rows=rows, quorum=quorum, timeout=timeout)
    )


def applied(caller: Caller, step: Integer) -> tf.Tensor:
    """Says that the step is applied, and begins the next one.

    Returns:
        Scalar int64: the next step.

    Raises:
        tf.errors.FailedPreconditionError: the caller is not the worker that is to apply this step.
    """
    return _run("applied", **_caller(caller), step=step)


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
    return _run("run_once", update=update, arguments=list(arguments), f=function, part=part, ledger=ledger)


def counts(ledger: str) -> Counts:
    """Returns how many submissions of each worker were dropped and counted."""
    return Counts(*_run("counts", ledger=ledger))


def submitters(ledger: str) -> tf.Tensor:
    """Returns the workers that have submitted for the current step: [m] int32, ascending."""
    return _run("submitters", ledger=ledger)


# --- gradients: also on servers whose ledger nobody joins ---------------------------------------------------------------------


def accumulate(
    tensors: Sequence[tf.Tensor], *, ledger: str, key: str, worker: Integer, step: Integer
) -> tf.Tensor:
    """Keeps a worker's gradients under a key, in place of its former ones. Copies nothing.

    Args:
        tensors: one or more, all float16, bfloat16, float32 or float64. Number, shapes and dtype agree between workers.
        ledger: its name.
        key: what they are gradients of: a variable, or a pack of variables.
        worker: whose they are.
        step: at which it read the weights.

    Returns:
        Scalar int64: how many gradients this server keeps for the ledger.

    Raises:
        tf.errors.InvalidArgumentError: another worker's have other shapes; both are named.
    """
    return _run("accumulate", worker=worker, step=step, tensors=list(tensors), ledger=ledger, key=key)


def sum_gradients(
    members: tf.Tensor, *, ledger: str, key: str, step: Integer, dtype: tf.DType, shapes: Sequence[Shape]
) -> List[tf.Tensor]:
    """Returns the sum of the members' gradients for a step, added in the order of their numbers: the same bits each time.

    float16 and bfloat16 are rounded after every addition.

    Args:
        members: [m] int32, ascending.
        ledger: its name.
        key: as at `accumulate`.
        step: of the gradients.
        dtype: of the accumulated tensors.
        shapes: of the accumulated tensors, as far as known.

    Returns:
        One sum for each tensor of a gradient.

    Raises:
        tf.errors.FailedPreconditionError: a member has no gradient for this step here; it is named.
    """
    return _run(
        "sum_gradients",
        members=members,
        step=step,
        T=dtype,
        N=len(shapes),
        shapes=list(shapes),
        ledger=ledger,
        key=key,
    )


def accumulate_rows(
    slices: tf.IndexedSlices, *, ledger: str, key: str, worker: Integer, step: Integer
) -> tf.Tensor:
    """Does the same as `accumulate` for rows: indices [n] (converted to int64), values [n, ...]. n may differ, and may be 0."""
    return _run(
        "accumulate_rows",
        worker=worker,
        step=step,
        indices=tf.cast(slices.indices, tf.int64),
        values=slices.values,
        ledger=ledger,
        key=key,
    )


def gather_rows(
    members: tf.Tensor, *, ledger: str, key: str, step: Integer, dtype: tf.DType, row_shape: Shape
) -> tf.IndexedSlices:
    """Returns the members' rows for a step, in the order of the members' numbers.

    Indices may repeat. The rows are kept.
    """
    indices, values = _run(
        "gather_rows",
        members=members,
        step=step,
        T=dtype,
        row_shape=row_shape,
        ledger=ledger,
        key=key,
    )
    return tf.IndexedSlices(values, indices)


def discard(ledger: str, step: Integer) -> tf.Tensor:
    """Frees the gradients of this step and of all steps before it, under every key, on this server.

    Returns:
        Scalar int64: how many gradients it still keeps for the ledger.
    """
    return _run("discard", step=step, ledger=ledger)


def _run(operation: str, **inputs: Any) -> Any:
    """Runs an operation of the ledger or adds it to the graph; returns its outputs."""
    outputs = getattr(loader.library(), f"tf_strategies_ledger_{operation}")(**inputs)
    if tf.executing_eagerly():
        tf.nest.flatten(outputs)[0].numpy()
    return outputs


def _run_apart(operation: str, *, ledger: str, **inputs: Any) -> Any:
    """Does the same as `_run`, for an operation that may wait, or fail when other workers are at fault.

    Eagerly it runs as a function of its own. A server gives each eager operation one of its few threads until it is done, and
    would soon serve nobody; and one that fails also fails what was sent there after it, before the error was known here.
    """
    if not tf.executing_eagerly():
        return _run(operation, ledger=ledger, **inputs)
    device = tf.constant(0).device
    with tf.device(None):
        tensors = {name: tf.convert_to_tensor(value, _DTYPES[name]) for name, value in inputs.items()}
        specs = tuple((name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items())
        outputs = _function_of(operation, ledger, device, specs)(*tensors.values())
        outputs[0].numpy()
    return outputs[0] if len(outputs) == 1 else outputs


@functools.lru_cache(maxsize=256)
def _function_of(operation: str, ledger: str, device: str, specs: Tuple[_Spec, ...]) -> Callable[..., Any]:
    def run(*inputs: tf.Tensor) -> Any:
        with tf.device(device):
            named = {name: value for (name, _, _), value in zip(specs, inputs)}
            return tuple(tf.nest.flatten(_run(operation, ledger=ledger, **named)))

    return tf.function(run, autograph=False).get_concrete_function(
        *(tf.TensorSpec(shape, dtype) for _, dtype, shape in specs)
    )


def _caller(caller: Caller) -> dict[str, Any]:
    return {
        "ledger": caller.ledger,
        "worker": caller.worker,
        "incarnation": tf.constant(caller.incarnation, tf.int64),
    }
