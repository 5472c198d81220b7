"""The ledger of a parameter server: its members, the number of the step, and the gradients that count.

These operations run on the device where they are placed, eagerly or in a tf.function. They use the ledger in the
process of that device, so call them in `with tf.device("/job:ps/task:0")`. A server's own Python code uses
`ledger_core`. In eager code they return after the operation has run. TensorFlow itself would return earlier, and
raise errors later.

A worker is identified by its number and by its incarnation, a random integer that each process of the worker
chooses once; see `Caller`. Calls that wait too long fail with an error that names the awaited workers. They
also end when their step is cancelled.

All operations can raise these errors, in addition to their own:
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
from tf_strategies.native.ledger.members import (
    RollBack,
    agree,
    enter,
    join,
    leave,
    roll_back,
    set_step,
    step,
)
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
    "RollBack",
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
    "roll_back",
    "run_once",
    "set_step",
    "staleness",
    "step",
    "submit",
    "submitters",
    "sum_gradients",
]
