"""Decides whether a step of several workers is applied: only if the gradients of all its members are finite.

Each worker checks its own gradients, and sends the outcomes to the first server. The worker that applies the step
adds up those of the members. A gradient of a late worker does not count, nor does its check. Another worker that takes
over comes to the same decision, because the members of a step are fixed.
"""

from __future__ import annotations

from typing import Callable, List, Sequence

import tensorflow as tf

from tf_strategies.native import ledger
from tf_strategies.parameter_server.cluster.membership import Membership
from tf_strategies.parameter_server.updates.application import Update, at_once
from tf_strategies.parameter_server.updates.server_writes import ServerWrites
from tf_strategies.parameter_server.updates.step import Condition, Step

__all__ = ["Checks", "made_if", "require_possible"]

_KEY = "gradients that are not finite"
_MOST = 4  # A step of n checks is built for each of its 2^n outcomes.


class Checks:
    """Sends the outcomes of a worker's checks to the first server, and gets those of all members of a step.

    Args:
        membership: this worker's entry in the ledgers.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    def send(self, access: ServerWrites, finite: Sequence[tf.Tensor], number: tf.Tensor) -> tf.Tensor:
        """Sends this worker's outcomes, each [] bool, for a step. Returns an operation's result, after they arrived."""
        server = self._membership.devices[0]
        broken = 1.0 - tf.cast(tf.stack(finite), tf.float32)
        arrived = access.to_server(server, broken)
        with tf.device(server):
            return at_once(
                ledger.accumulate(
                    [arrived],
                    ledger=self._membership.name,
                    key=_KEY,
                    worker=self._membership.rank,
                    step=number,
                )
            )

    def outcomes(self, submission: ledger.Submission, count: int) -> List[tf.Tensor]:
        """Returns, for each check, whether the gradients of all members are finite, [] bool."""
        if not count:
            return []
        with tf.device(self._membership.devices[0]):
            (broken,) = ledger.sum_gradients(
                submission.members,
                ledger=self._membership.name,
                key=_KEY,
                step=submission.step,
                dtype=tf.float32,
                shapes=[[count]],
            )
            return tf.unstack(tf.equal(at_once(broken), 0.0))


def made_if(
    finite: Sequence[tf.Tensor], updates: Sequence[Update], apply: Callable[[Sequence[Update]], tf.Tensor]
) -> tf.Tensor:
    """Calls `apply` with the updates that are made for the outcomes of the checks. Returns its result.

    Args:
        finite: the outcomes, each [] bool.
        updates: the updates of the step.
        apply: applies updates. It is called for each combination of outcomes, in a branch.
    """
    if not finite:
        return apply(updates)
    *others, last = finite

    def branch(outcome: bool) -> tf.Tensor:
        left_out = Condition(len(others), not outcome)
        return made_if(others, [update for update in updates if update.condition != left_out], apply)

    return tf.cond(last, lambda: branch(True), lambda: branch(False))


def require_possible(step: Step) -> None:
    """Raises NotImplementedError if gradients cannot be applied with a loss scale at this place of a step."""
    if not step.is_top:
        raise NotImplementedError(
            "gradients are applied with a loss scale inside tf.cond or a loop in a replica function; "
            "SyncReplicasStrategy applies gradients at the top of the function only"
        )
    if len(step.checks) == _MOST:
        raise NotImplementedError(
            f"gradients are applied with a loss scale more than {_MOST} times in a step; apply those of several "
            f"models together, or use mixed_bfloat16, which needs no loss scale"
        )
