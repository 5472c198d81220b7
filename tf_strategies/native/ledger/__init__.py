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

from tf_strategies.native.ledger.calls import Caller
from tf_strategies.native.ledger.gradients import (
    accumulate,
    accumulate_rows,
    discard,
    gather_rows,
    sum_gradients,
)
from tf_strategies.native.ledger.members import agree, enter, join, leave, set_step, step
from tf_strategies.native.ledger.pulls import UNBOUNDED, Staleness, pull, push, staleness
from tf_strategies.native.ledger.submissions import (
    Counts,
    Decision,
    Submission,
    applied,
    counts,
    run_once,
    submit,
    submitters,
)

__all__ = [
    "UNBOUNDED",
    "Caller",
    "Counts",
    "Decision",
    "Staleness",
    "Submission",
    "accumulate",
    "accumulate_rows",
    "agree",
    "applied",
    "counts",
    "discard",
    "enter",
    "gather_rows",
    "join",
    "leave",
    "pull",
    "push",
    "run_once",
    "set_step",
    "staleness",
    "step",
    "submit",
    "submitters",
    "sum_gradients",
]
