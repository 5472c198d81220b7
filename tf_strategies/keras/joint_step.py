"""Computes one step of `fit` or `evaluate` on many replicas, with the result of one process that has the joint batch.

Keras calls `train_step` on every replica, each with its rows of the batch. A `train_step` is written for one process: its losses
are means over the batch it sees, and its gradients go to an optimizer. A `JointStep` keeps that meaning:

- Each replica has a weight, its rows divided by the rows of all replicas. The weights of a step add up to 1.
- The joint batch's mean loss is the weighted sum of the replicas' mean losses, and so is its gradient.
- A gradient that a `tf.GradientTape` computes for variables of the strategy is that of the joint batch. The tape starts
  from the weight in place of 1, and the results are added up over the replicas. Clipping, noise or logs in `train_step` see the
  same gradient as in one process.
- A gradient that did not come from a tape unchanged is weighted and added up when the optimizer applies it.
- A `train_step` that adds such a gradient up over replicas itself, with `all_reduce`, gets the same gradient back.
"""

from __future__ import annotations

import functools
import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import tensorflow as tf

from tf_strategies.keras.postponed_gradients import PostponedGradients
from tf_strategies.keras.step_results import StepResults
from tf_strategies.types import Kwargs, PerReplica, Structure, TensorOrSlices

__all__ = ["JointStep", "current_step", "times"]

_this_thread = threading.local()


class JointStep:
    """Holds the state that the replicas of one step share.

    Args:
        replicas: the number of replicas of all workers, when the step is traced.
        replicas_in_graph: returns this number for use in a graph; None if it never changes.
        shares: returns, for each local replica, its weight times `replicas` ([] float64), or None where all replicas have
            the same number of rows. The first call in a step is a collective.
        are_copied: returns whether all replicas have the same rows, of which one counts them ([] bool); None if they never do.
        owns: returns True for a variable of the strategy, whose gradients are added up over replicas.
        local_replica: returns the local number of the replica that calls.
        is_recording: returns True while a `tf.GradientTape` records.
        is_agreed: returns True for a tensor that is known to be equal on all replicas.
        sums_logs: whether Keras adds up the scalars that the replicas return. Otherwise it takes their mean.
        weighs_logs: whether these scalars are weighted by rows for that. Otherwise each worker logs its own.
        postpones: whether gradients are added up when the optimizer applies them, and not when the tape
            computes them. This is for gradients that are accumulated or compressed first.
        weight_of_gradients: returns the weight of the calling replica's gradients, if it is not `weight`.
        note_loss: is given the losses of Keras, where their divisors are not added up over replicas; see `LossDivisors.note`.
        look_at_loss: is given each loss whose gradients are added up.
        look_at_log: is given each tensor that a replica returns, unless it is known to be equal on all.
        look_at_metric: is given the name of a metric and a scalar of which it takes the mean, at the end of the step.
        trust: is given tensors that are computed from the rows of all replicas.
        results: makes the object that knows the results of the model's metrics; None if Keras reads them over all replicas.
    """

    def __init__(
        self,
        *,
        replicas: int,
        replicas_in_graph: Optional[Callable[[], Union[int, tf.Tensor]]] = None,
        shares: Callable[[], Optional[List[tf.Tensor]]],
        owns: Callable[[tf.Variable], bool],
        local_replica: Callable[[], int],
        is_recording: Callable[[], bool],
        is_agreed: Callable[[tf.Tensor], bool],
        sums_logs: bool,
        postpones: bool,
        weighs_logs: bool = True,
        are_copied: Callable[[], Optional[tf.Tensor]] = lambda: None,
        weight_of_gradients: Callable[[], Optional[tf.Tensor]] = lambda: None,
        note_loss: Callable[[str, Optional[tf.Tensor], tf.Tensor, bool], None] = lambda *of_loss: None,
        look_at_loss: Callable[[tf.Tensor], None] = lambda loss: None,
        look_at_log: Callable[[tf.Tensor], None] = lambda value: None,
        look_at_metric: Callable[[str, tf.Tensor], None] = lambda name, value: None,
        trust: Callable[[tf.Tensor], None] = lambda tensor: None,
        results: Callable[[], Optional[StepResults]] = lambda: None,
    ) -> None:
        self.replicas = replicas
        self._replicas_in_graph = replicas_in_graph or (lambda: replicas)
        self.postpones = postpones
        self.owns = owns
        self.look_at_loss = look_at_loss
        self._look_at_log = look_at_log
        self._look_at_metric = look_at_metric
        self.trust = trust
        self._shares = shares
        self._are_copied = are_copied
        self._weight_of_gradients = weight_of_gradients
        self.note_loss = note_loss
        self._local_replica = local_replica
        self._is_recording = is_recording
        self._is_agreed = is_agreed
        self._sums_logs, self._weighs_logs = sums_logs, weighs_logs
        self._results = results() if replicas > 1 else None
        self._joint: Dict[int, tf.Tensor] = {}
        self._weighted: Dict[int, tf.Variable] = {}
        self._given: List[Tuple[str, tf.Tensor]] = []
        self._adding = False
        self._of_replicas: Dict[int, PostponedGradients] = {}

    def within(self, fn: Callable[..., Structure]) -> Callable[..., Structure]:
        """Returns the replica function `fn`, as part of this step.

        Scalars that `fn` returns are weighted, so that Keras gets their mean over the joint batch from all replicas.
        """

        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Structure:
            before = getattr(_this_thread, "step", None)
            _this_thread.step = self
            try:
                logs = self._logs_of(fn, args, kwargs)
                while self._given:
                    self._look_at_metric(*self._given.pop(0))
                if self.postpones and self.replicas > 1:
                    self._postponed().warn_of(tf.nest.flatten(logs), "a number that it returns", _rank())
                return tf.nest.map_structure(self._as_part_of_logs, logs)
            finally:
                _this_thread.step = before

        return tf.autograph.experimental.do_not_convert(run)

    def _logs_of(self, fn: Callable[..., Structure], args: Sequence[Structure], kwargs: Kwargs) -> Structure:
        if self._results is None:
            return fn(*args, **kwargs)
        with self._results.noted():
            logs = fn(*args, **kwargs)
        return self._results.of_all_replicas(logs)

    def note_metric(self, name: str, value: tf.Tensor) -> None:
        """Notes a scalar that is given to a metric, which is looked at when the losses are known."""
        self._given.append((name, value))

    def share(self) -> Optional[tf.Tensor]:
        """Returns the weight of the calling replica times the number of replicas, [] float64; None where it is always 1."""
        shares = self._shares()
        return None if shares is None else shares[self._local_replica()]

    def weight(self) -> Union[float, tf.Tensor]:
        """Returns the weight of the calling replica: its rows divided by the rows of all replicas."""
        share = self.share()
        replicas = self._replicas_in_graph()
        return 1.0 / replicas if share is None else share / replicas

    def weight_of_gradients(self) -> Union[float, tf.Tensor]:
        """Returns the weight of the calling replica's gradients; call it when its losses are known."""
        weight = self._weight_of_gradients()
        return self.weight() if weight is None else weight

    def weight_in_metrics(self) -> Union[float, tf.Tensor]:
        """Returns the weight of the calling replica in metrics that are added up over the replicas.

        It is `weight`, unless this replica alone counts rows that all replicas have.
        """
        return self._unless_copied(self.weight())

    def factor_of_sums(self) -> Union[float, tf.Tensor]:
        """Returns the factor of a sum over the rows of the replica, such that its weighted mean is the sum over the joint batch.

        It is 1 divided by `weight`, 0 for a replica without rows, and 1 if all replicas have the same rows.
        """
        share = self.share()
        if share is None:
            return self._unless_copied(1.0 * self._replicas_in_graph())
        replicas = tf.cast(self._replicas_in_graph(), share.dtype)
        return self._unless_copied(tf.math.divide_no_nan(replicas, share))

    def _unless_copied(self, value: Union[float, tf.Tensor]) -> Union[float, tf.Tensor]:
        """Returns the value, or 1 if all replicas have the same rows."""
        are_copied = self._are_copied()
        return value if are_copied is None else tf.where(are_copied, tf.ones_like(value), value)

    def can_join(self) -> bool:
        """Returns False within another tape, as for second derivatives.

        Such gradients are those of the replica.
        """
        return not self._is_recording()

    def add_up(
        self, gradients: Sequence[TensorOrSlices], variables: Sequence[tf.Variable]
    ) -> List[TensorOrSlices]:
        """Returns the joint gradients of the variables, given weighted gradients of each replica.

        Call it in a replica function.
        """
        context = tf.distribute.get_replica_context()
        if self.postpones:
            for variable in variables:
                self._weighted[id(variable)] = variable
            self._postponed().note(gradients)
            return list(gradients)
        return list(context.merge_call(self._add_up, args=(list(gradients), list(variables))))

    def _add_up(
        self,
        strategy: tf.distribute.Strategy,
        gradients: Sequence[TensorOrSlices],
        variables: Sequence[tf.Variable],
    ) -> List[PerReplica]:
        self._adding = True
        try:
            sums = strategy.extended.batch_reduce_to(
                tf.distribute.ReduceOp.SUM, list(zip(gradients, variables))
            )
        finally:
            self._adding = False
        for total in sums:
            for part in strategy.experimental_local_results(total):
                self._joint[id(_identity(part))] = _identity(part)
        return sums

    def look_at_gradients(self, gradients: Sequence[Optional[TensorOrSlices]]) -> None:
        """Warns if gradients that are applied now have been changed before they were added up."""
        if self.postpones and self.replicas > 1:
            self._postponed().warn_of(gradients, "the gradients that it applies", _rank())

    def _postponed(self) -> PostponedGradients:
        """Returns the gradients of the calling replica that are not added up yet."""
        return self._of_replicas.setdefault(self._local_replica(), PostponedGradients())

    def is_joint(self, parts: Sequence[TensorOrSlices]) -> bool:
        """Returns True if these gradients, one for each local replica, are already those of the joint batch."""
        return not self._adding and all(id(_identity(part)) in self._joint for part in parts)

    def as_summands(self, parts: Sequence[TensorOrSlices], variable: tf.Variable) -> List[TensorOrSlices]:
        """Returns the gradients of a variable, one for each local replica, such that their sum is the joint gradient."""
        if self.replicas == 1 or self._adding or id(variable) in self._weighted:
            return list(parts)
        shares = self._shares()
        weights = [1.0 if shares is None else share for share in shares or [None] * len(parts)]
        replicas = self._replicas_in_graph()
        return [times(part, weight / replicas) for part, weight in zip(parts, weights)]

    def _as_part_of_logs(self, value: object) -> object:
        if not isinstance(value, tf.Tensor) or self.replicas == 1 or self._is_agreed(value):
            return value
        self._look_at_log(value)
        if value.shape.rank != 0 or not value.dtype.is_floating or not self._weighs_logs:
            return value
        share = self.share()
        if share is None:
            return value / tf.cast(self._replicas_in_graph(), value.dtype) if self._sums_logs else value
        share = tf.cast(share / self._replicas_in_graph() if self._sums_logs else share, value.dtype)
        return tf.where(share > 0, value * share, tf.zeros_like(value))


def _rank() -> int:
    return int(getattr(tf.distribute.get_strategy(), "rank", 0))


def current_step() -> Optional[JointStep]:
    """Returns the step whose replica function runs on this thread, or None outside of replica functions."""
    step = getattr(_this_thread, "step", None)
    return None if step is None or tf.distribute.in_cross_replica_context() else step


def _identity(gradient: TensorOrSlices) -> tf.Tensor:
    """Returns the tensor that identifies a gradient, also behind an identity operation."""
    tensor = gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
    while isinstance(tensor, tf.Tensor) and not hasattr(tensor, "numpy") and tensor.op.type == "Identity":
        tensor = tensor.op.inputs[0]
    return tensor


def times(gradient: TensorOrSlices, factor: Union[float, tf.Tensor]) -> TensorOrSlices:
    """Returns a gradient times a factor."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(times(gradient.values, factor), gradient.indices, gradient.dense_shape)
    gradient = tf.convert_to_tensor(gradient)
    return gradient * tf.cast(factor, gradient.dtype)
