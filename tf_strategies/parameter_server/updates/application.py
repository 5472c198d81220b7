"""Applies a step: one worker makes every server run its part of the step as one function, exactly once.

If this worker is lost meanwhile, another worker takes over and asks all servers again. Servers that have
begun run nothing twice.
"""

from __future__ import annotations

import itertools
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.native import ledger
from tf_strategies.parameter_server.cluster.membership import Membership
from tf_strategies.parameter_server.updates.bundles import Bundle
from tf_strategies.parameter_server.updates.server_writes import ServerWrites
from tf_strategies.parameter_server.updates.step import Condition, EntangledError, Step
from tf_strategies.parameter_server.updates.update_rule import run_on_part, run_there, to_server
from tf_strategies.parameter_server.variables.parts import Part
from tf_strategies.parameter_server.variables.server_variable import ServerVariable
from tf_strategies.types import Fetch, Kwargs, Structure, TensorOrSlices

__all__ = ["Application", "Update", "at_once"]


class Update(NamedTuple):
    """The update of one variable by the worker that applies a step.

    Attributes:
        fn: the function that updates the variable, given the variable and `args`.
        is_write: whether the update only writes `args`, and reads nothing.
        key: the key of the values that each worker accumulates for the first argument; "" if there are none.
        merge: the number of the `merge_call` of the step that requested the update.
        token: an operation that stands for the update in a graph that a session runs. A session that runs it
            requests the update.
        condition: the outcome of a check of the gradients on which the update depends; None if it is always made.
    """

    access: ServerWrites
    variable: ServerVariable
    fn: Callable[..., Structure]
    args: Tuple[Structure, ...]
    kwargs: Kwargs
    is_write: bool
    key: str
    merge: int
    token: Optional[tf.Tensor] = None
    condition: Optional[Condition] = None


class _Job(NamedTuple):
    """The update of one part."""

    update: Update
    index: int
    part: Part
    args: List[Structure]


class Application:
    """Applies one step. It is built in the branch that runs if the ledger tells this worker to apply the step.

    Args:
        step: the step.
        updates: its postponed updates.
        bundles: the bundles that the workers have accumulated for it.
        submission: the answer of the ledger.
        membership: this worker's entry in the ledgers.
        replicas: the number of workers by which Keras has divided each loss.
    """

    def __init__(
        self,
        step: Step,
        updates: Sequence[Update],
        bundles: Sequence[Bundle],
        submission: ledger.Submission,
        *,
        membership: Membership,
        replicas: int,
    ) -> None:
        self._step = step
        self._updates = updates
        self._bundles = bundles
        self._submission = submission
        self._membership = membership
        self._replicas = replicas
        self._done: List[Fetch] = []
        self._before: List[Fetch] = []
        self._means: Dict[Tuple[str, int], TensorOrSlices] = {}

    def run(self) -> tf.Tensor:
        """Applies the step, and reports this to the ledger. Returns the number of the next step, [] int64."""
        for number, updates in enumerate(_stretches(self._updates)):
            self._apply(number, updates)
        with tf.device(self._membership.devices[0]), tf.control_dependencies(self._done):
            following = ledger.applied(self._membership.caller, tf.identity(self._submission.step))
        for device in self._membership.devices:
            with tf.device(device):
                at_once(ledger.discard(self._membership.name, following - 1))
        return following

    def _apply(self, number: int, updates: Sequence[Update]) -> None:
        if tf.executing_eagerly():
            self._apply_in_order(updates)
            return
        jobs = list(_jobs(updates))
        try:
            functions = {device: self._function(device, jobs) for device in _devices(jobs)}
        except EntangledError:
            self._apply_in_order(updates)
            return
        done = []
        for device, (function, arguments) in functions.items():
            # Another worker may take over, so no server writes before all servers have read the old values.
            with tf.device(device), tf.control_dependencies(self._before):
                done.append(
                    ledger.run_once(
                        self._submission.update,
                        function,
                        arguments,
                        ledger=self._membership.name,
                        part=number,
                    )
                )
        self._before = done
        self._done += done

    def _function(self, device: str, jobs: Sequence[_Job]) -> Tuple[str, List[tf.Tensor]]:
        """Returns the function that one server runs.

        Its arguments are sent before it starts; it computes the mean over the workers.
        """
        written = {id(job.part.variable) for job in jobs}
        mine = [job for job in jobs if job.part.device == device]
        arrived = [
            to_server(job.update.access, job.part, (_own(job.update, job.args), job.update.kwargs))
            for job in mine
        ]
        keys = {(job.update.key, job.part.start) for job in mine if job.update.key}
        bundles = [
            bundle
            for bundle in self._bundles
            if bundle.device == device and not keys.isdisjoint(bundle.pieces)
        ]

        def build() -> None:
            with self._step.on_server(device, written):
                means = self._means_of(bundles)
                for (update, index, part, _), (args, kwargs) in zip(mine, arrived):
                    mean = [means[update.key, part.start]] if update.key else []
                    run_there(update.variable, index, part, update.fn, [*mean, *args], kwargs)

        return compat.defined_function("update", build)

    def _apply_in_order(self, updates: Sequence[Update]) -> None:
        """Applies the postponed updates one after another, on any servers. This worker runs each operation."""
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        first = 0 if graph is None else len(graph.get_operations())
        if not self._means:
            self._means = self._means_of(self._bundles)
        for update, index, part, args in _jobs(updates):
            mean = [self._means[update.key, part.start]] if update.key else []
            args = [*mean, *_own(update, args)]
            run_on_part(update.access, update.variable, index, part, update.fn, args, update.kwargs)
        if graph is not None:
            written = [op for op in graph.get_operations()[first:] if compat.written_resources(op)]
            self._done += written

    def _means_of(self, bundles: Sequence[Bundle]) -> Dict[Tuple[str, int], TensorOrSlices]:
        means: Dict[Tuple[str, int], TensorOrSlices] = {}
        for bundle in bundles:
            means.update(bundle.members_of(self._mean(bundle)))
        return means

    def _mean(self, bundle: Bundle) -> TensorOrSlices:
        """Returns the mean of the members' gradients.

        Keras has divided each loss by the number of workers, so gradients are multiplied by it.
        """
        members = self._submission.members
        where = {"ledger": self._membership.name, "key": bundle.key, "step": self._submission.step}
        with tf.device(bundle.device):
            if bundle.rows is not None:
                rows = ledger.gather_rows(
                    members, dtype=bundle.dtype, row_shape=bundle.rows.values.shape[1:], **where
                )
                at_once(rows.values)
                values = self._scaled(bundle, rows.values)
                return tf.IndexedSlices(values, rows.indices, dense_shape=bundle.rows.dense_shape)
            (total,) = ledger.sum_gradients(members, dtype=bundle.dtype, shapes=[bundle.shape], **where)
            return self._scaled(bundle, at_once(total))

    def _scaled(self, bundle: Bundle, total: tf.Tensor) -> tf.Tensor:
        count, factor = tf.size(self._submission.members), self._replicas if bundle.is_gradient else 1
        weights = self._step.weights
        if bundle.is_gradient and weights is not None:
            count, factor = self._submission.rows, weights.total

        def scale() -> tf.Tensor:
            return total * tf.math.divide_no_nan(tf.cast(factor, bundle.dtype), tf.cast(count, bundle.dtype))

        return tf.cond(tf.equal(count, factor), lambda: tf.identity(total), scale)


def at_once(result: tf.Tensor) -> tf.Tensor:
    """Makes an operation of the ledger wait for its inputs only.

    In program order, servers would wait for each other.
    """
    if not tf.executing_eagerly():
        compat.run_independently(result.op)
    return result


def _stretches(updates: Sequence[Update]) -> Iterator[List[Update]]:
    """Splits the updates, in order, between updates that may read and updates that only write."""
    return (list(group) for _, group in itertools.groupby(updates, lambda update: update.is_write))


def _jobs(updates: Sequence[Update]) -> Iterator[_Job]:
    for update in updates:
        for index, (part, args) in enumerate(update.variable.pieces_of_arguments(update.args)):
            yield _Job(update, index, part, args)


def _devices(jobs: Sequence[_Job]) -> List[str]:
    return list(dict.fromkeys(job.part.device for job in jobs))


def _own(update: Update, args: List[Structure]) -> List[Structure]:
    """Returns the arguments that come from this worker, instead of the mean over all workers."""
    return args[1:] if update.key else args
