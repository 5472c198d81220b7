"""Synchronous SGD with backup workers: servers average the first gradients of a step, and drop late ones."""

from __future__ import annotations

import logging
from typing import Callable, List, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.keras import ownership
from tf_strategies.native import ledger
from tf_strategies.parameter_server.cluster.membership import Membership
from tf_strategies.parameter_server.updates.application import Application, Update, at_once
from tf_strategies.parameter_server.updates.bundles import Bundle, Contribution, bundles_of
from tf_strategies.parameter_server.updates.checks import Checks, made_if, require_possible
from tf_strategies.parameter_server.updates.compressed import CompressedPushes, Push
from tf_strategies.parameter_server.updates.server_writes import ServerWrites
from tf_strategies.parameter_server.updates.step import Condition, Step, current_step
from tf_strategies.parameter_server.updates.update_rule import (
    UpdateRule,
    is_gradient,
    run_on_part,
    to_put_off,
)
from tf_strategies.parameter_server.variables.server_variable import ServerVariable
from tf_strategies.session_graphs.coordinator import in_session_graph
from tf_strategies.session_graphs.effects import led_to
from tf_strategies.types import Fetch, Kwargs, Structure, TensorOrSlices

__all__ = ["SynchronousUpdates"]

_log = logging.getLogger("tf_strategies")

_OLD_VALUE = (
    "variable %r is read in the same step in which it was changed before. SyncReplicasStrategy changes variables when the step "
    "ends, so this reads the old value, and training differs from that of one process. Compute all losses and outputs before the "
    "step applies gradients or assigns, or use CollectiveAllReduceStrategy"
)


class SynchronousUpdates(UpdateRule):
    """Accumulates gradients on the servers until a quorum of workers has submitted theirs for the step (Chen et al. 2016).

    Each worker reads the number of the step and then the weights. It computes its gradients, pushes them to
    the servers that hold the variables, and submits them to the ledger on the first server. The worker that
    completes the quorum applies the step: it makes the servers add up the gradients of all members, in the
    order of their ranks, and run the optimizer once. The other workers wait for this, so that no worker
    computes on weights of an older step.

    Args:
        membership: this worker's entry in the ledgers.
        quorum: the number of gradients in a step.
        compressed: sends compressed gradients to the servers; None for no compression.
    """

    def __init__(
        self, membership: Membership, *, quorum: int, compressed: Optional[CompressedPushes] = None
    ) -> None:
        self._membership = membership
        self._compressed = compressed
        self._quorum = quorum
        self._checks = Checks(membership)
        self._has_warned = False
        self.replicas_in_sync = membership.size

    def before_reading(self, step: Step) -> Sequence[tf.Tensor]:
        return [self._number(step)]

    def is_read(self, variable: ServerVariable) -> None:
        step = current_step()
        if step is None or self._has_warned or ownership.belongs_to_optimizer(variable):
            return
        if any(update.variable is variable for update in step.pending):
            self._has_warned = True
            if self._membership.rank == 0:
                _log.warning(_OLD_VALUE, variable.name)

    def update(
        self,
        access: ServerWrites,
        variable: ServerVariable,
        fn: Callable[..., Structure],
        args: Tuple[Structure, ...],
        kwargs: Kwargs,
    ) -> List[Structure]:
        step = current_step()
        if step is None:
            return _run(access, variable, fn, args, kwargs)
        _require_top(step, variable)
        key = ""
        if variable.trainable and args and is_gradient(args[0], variable):
            key = f"{variable.parts[0].variable._unique_id}/{len(step.pending)}"
        return self._put_off(
            step, Update(access, variable, fn, to_put_off(args), kwargs, False, key, step.merges)
        )

    def write(
        self, access: ServerWrites, variable: ServerVariable, how: str, value: TensorOrSlices, kwargs: Kwargs
    ) -> List[Structure]:
        step = current_step()
        if step is None:
            return access.write(variable, how, value, kwargs)
        _require_top(step, variable)
        trained = [] if in_session_graph() else [each.variable for each in step.pending if each.key]
        if how == "assign" and variable.trainable and any(each is variable for each in trained):
            _refuse_write_after_gradient(variable)
        key = ""
        if isinstance(value, tf.Tensor) and _is_statistic(variable):
            key = f"{variable.parts[0].variable._unique_id}/{len(step.pending)}"

        def fn(variable: ServerVariable, value: TensorOrSlices) -> Structure:
            return getattr(variable, how)(value, **kwargs)

        return self._put_off(step, Update(access, variable, fn, (value,), {}, True, key, step.merges))

    def apply_if_finite(self, finite: tf.Tensor, apply: Callable[[], None], skip: Callable[[], None]) -> None:
        step = current_step()
        if step is None:
            super().apply_if_finite(finite, apply, skip)
            return
        require_possible(step)
        check = len(step.checks)
        step.checks.append(finite)
        for outcome, request in ((True, apply), (False, skip)):
            with step.only_if(Condition(check, outcome)):
                request()

    def leave_out(self, step: Step, result: Structure) -> None:
        wanted = led_to(result)
        left = [update for update in step.pending if update.token.op not in wanted]
        step.pending = [update for update in step.pending if update.token.op in wanted]
        _require_gradients_last(step)
        for update in left:
            if update.key and update.variable.trainable:
                raise ValueError(
                    f"the gradient of {update.variable.name} is applied by an operation that does not "
                    f"belong to the training step; with SyncReplicasStrategy group it into the train_op of "
                    f"the EstimatorSpec, or return it from the replica function"
                )
            done = _run(update.access, update.variable, update.fn, update.args, update.kwargs)
            compat.run_before(
                update.token.op, [each if isinstance(each, tf.Operation) else each.op for each in done]
            )

    def _put_off(self, step: Step, update: Update) -> List[Structure]:
        if in_session_graph():
            update = update._replace(token=tf.constant(0, name="put_off"))
        step.pending.append(update._replace(condition=step.condition))
        return [] if update.token is None else [update.token]

    def end_step(self, step: Step) -> None:
        if not any(update.key and update.variable.trainable for update in step.pending):
            _require_gradients(step, self.replicas_in_sync)
            if step.checks:
                raise NotImplementedError(
                    "a loss scale is used in a step that has no gradient of a trainable variable; let SyncReplicasStrategy apply "
                    "gradients to variables that were made in its scope, or use mixed_bfloat16"
                )
            for update in step.pending:
                _run(update.access, update.variable, update.fn, update.args, update.kwargs)
            return
        bundles = bundles_of(self._contributions(step))
        access = step.pending[0].access
        accumulated = [self._accumulate(access, bundle, self._number(step)) for bundle in bundles]
        if step.checks:
            accumulated.append(self._checks.send(access, step.checks, self._number(step)))
        with tf.device(self._membership.devices[0]):
            submission = ledger.submit(
                self._membership.caller,
                _after(accumulated, self._number(step)),
                rows=1 if step.weights is None else step.weights.own,
                quorum=self._quorum,
                timeout=self._membership.timeout,
            )
            applies = tf.equal(submission.decision, ledger.Decision.APPLY)
        tf.cond(
            applies,
            lambda: self._apply(step, bundles, submission),
            lambda: tf.constant(0, tf.int64),
        )

    def _contributions(self, step: Step) -> List[Contribution]:
        """Returns this worker's values for each update, and the server that already has them if they were compressed."""
        found: List[Contribution] = [
            (update.key, update.variable.trainable, update.variable.pieces_of_arguments(update.args[:1]))
            for update in step.pending
            if update.key
        ]
        if self._compressed is None:
            return found
        updates = [update for update in step.pending if update.key]
        pushes = [
            Push(update.variable, part, value, update.merge)
            for update, (_, trains, pieces) in zip(updates, found)
            if trains
            for part, (value,) in pieces
        ]
        values = iter(self._compressed.pushed(pushes))
        return [
            (key, trains, [(part, [next(values)]) for part, _ in pieces] if trains else pieces)
            for key, trains, pieces in found
        ]

    def _apply(self, step: Step, bundles: Sequence[Bundle], submission: ledger.Submission) -> tf.Tensor:
        def apply(updates: Sequence[Update]) -> tf.Tensor:
            return Application(
                step,
                updates,
                bundles,
                submission,
                membership=self._membership,
                replicas=self.replicas_in_sync,
            ).run()

        finite = self._checks.outcomes(submission, len(step.checks))
        return made_if(finite, step.pending, apply)

    def _number(self, step: Step) -> tf.Tensor:
        def read() -> tf.Tensor:
            with tf.device(self._membership.devices[0]):
                return at_once(ledger.step(self._membership.name))

        with step.outside_of_branches():
            return step.cached(("step",), read)

    def _accumulate(self, access: ServerWrites, bundle: Bundle, number: tf.Tensor) -> tf.Tensor:
        """Pushes the values of a bundle to the accumulator of its server."""
        where = {"ledger": self._membership.name, "key": bundle.key, "worker": self._membership.rank}
        value = access.to_server(bundle.device, bundle.value())
        with tf.device(bundle.device):
            if isinstance(value, tf.IndexedSlices):
                return at_once(ledger.accumulate_rows(value, step=number, **where))
            return at_once(ledger.accumulate([value], step=number, **where))


def _is_statistic(variable: ServerVariable) -> bool:
    """Returns True if each worker writes the variable by itself, as it does with moving averages.

    The aggregation of such variables is NONE in Keras 3 and MEAN in Keras 2.
    """
    averaged = variable.aggregation in (tf.VariableAggregation.MEAN, tf.VariableAggregation.NONE)
    if not averaged or not variable.dtype.is_floating or variable.trainable:
        return False
    return not (ownership.belongs_to_replica(variable) or ownership.belongs_to_optimizer(variable))


def _require_top(step: Step, variable: ServerVariable) -> None:
    if not step.is_top:
        raise NotImplementedError(
            f"{variable.name} is updated inside tf.cond or a loop in a replica function; SyncReplicasStrategy applies gradients "
            "at the top of the function only: update it there, or use CollectiveAllReduceStrategy"
        )


def _require_gradients_last(step: Step) -> None:
    with_gradients = set()
    for update in step.pending:
        if update.key and update.variable.trainable:
            with_gradients.add(id(update.variable))
        elif update.is_write and id(update.variable) in with_gradients:
            _refuse_write_after_gradient(update.variable)


def _refuse_write_after_gradient(variable: ServerVariable) -> None:
    raise NotImplementedError(
        f"{variable.name} is written after its gradient is applied, in the same step: SyncReplicasStrategy applies gradients "
        "when the step ends, so the written value was computed without them; to clip weights, give the variable a constraint"
    )


def _require_gradients(step: Step, workers: int) -> None:
    written = [update.variable.name for update in step.pending if update.variable.trainable]
    if in_session_graph() and written and workers > 1:
        raise NotImplementedError(
            f"{written[0]} is trained by assignments: SyncReplicasStrategy adds up the gradients that an optimizer of "
            "tf.compat.v1.train or Keras applies; use one, or CollectiveAllReduceStrategy and all_reduce"
        )


def _after(operations: Sequence[Optional[Fetch]], value: tf.Tensor) -> tf.Tensor:
    """Returns the value after the operations have run."""
    with tf.control_dependencies([each for each in operations if each is not None]):
        return tf.identity(value)


def _run(
    access: ServerWrites,
    variable: ServerVariable,
    fn: Callable[..., Structure],
    args: Sequence[Structure],
    kwargs: Kwargs,
) -> List[Structure]:
    return [
        run_on_part(access, variable, index, part, fn, mine, kwargs)
        for index, (part, mine) in enumerate(variable.pieces_of_arguments(args))
    ]
