"""Averages statistics that each replica writes, such as moving averages of batch normalization, after every step.

Each replica normalizes by its own batch and writes its own statistics. When all replicas are done, these are
averaged over all replicas of all workers, weighted by rows, in one message: moving = m * moving + (1 - m) *
the mean of the replicas' batch statistics. So workers stay bit-identical, and each can save or evaluate at
any moment. Only variables that were assigned in the step take part, so evaluation does not communicate.
Variables of optimizers, which are equal on all replicas, and states that belong to the rows of one replica
are not averaged.
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Union

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.collective.variables.worker_variable import WorkerVariable
from tf_strategies.collective.variables.written_variables import WrittenVariables
from tf_strategies.keras import ownership
from tf_strategies.types import Fetch, Result

__all__ = ["ReplicaStatistics"]


class ReplicaStatistics:
    """Records the statistics that replicas write, and averages them.

    Args:
        replicas: returns the number of all replicas, for use in a graph.
        may_have_others: returns whether there are several replicas, or more may come.
        share: returns, in a replica function, the replica's rows divided by the mean over all replicas, []
            float64; None if always 1.
        sum_between_workers: returns the sums over all workers of a list of tensors.
    """

    def __init__(
        self,
        *,
        replicas: Callable[[], Union[int, tf.Tensor]],
        may_have_others: Callable[[], bool],
        share: Callable[[], Optional[tf.Tensor]],
        sum_between_workers: Callable[[Sequence[tf.Tensor]], List[tf.Tensor]],
    ) -> None:
        self._replicas, self._may_have_others = replicas, may_have_others
        self._share = share
        self._sum_between_workers = sum_between_workers
        self._known: List[weakref.ref[tf.Variable]] = []
        self._watching = False
        self._graph: Optional[WrittenVariables] = None
        self._written: Dict[int, tf.Variable] = {}
        self._shares: List[Optional[tf.Tensor]] = []

    def adopt(self, variable: tf.Variable) -> None:
        """Tracks a new variable, if replicas write it by themselves."""
        if self._may_have_others() and _is_statistic(variable):
            when_read = compat.is_sync_on_read_variable(variable)
            variable.__class__ = _StatisticWhenRead if when_read else _Statistic
            self._known = [known for known in self._known if known() is not None] + [weakref.ref(variable)]

    def watch(self, fn: Callable[..., Result]) -> Callable[..., Result]:
        """Returns the replica function `fn`. `agree` averages the statistics that it writes."""

        @tf.autograph.experimental.do_not_convert
        def watched(*args: Any, **kwargs: Any) -> Result:
            result = fn(*args, **kwargs)
            if self._graph is not None:
                for variable in self._graph.among(self.known()):
                    self.note(variable)
            self._shares.append(self._share() if self._written else None)
            return result

        self.forget()
        self._watching = True
        self._graph = None if tf.executing_eagerly() else WrittenVariables()
        return watched

    def note(self, variable: tf.Variable) -> None:
        """Notes that a replica is about to write the variable."""
        if not self._watching or not _is_averaged(variable):
            return
        if self._graph is None and not tf.executing_eagerly():
            raise NotImplementedError(
                f"variable {variable.name!r} is assigned in a tf.function that a replica calls, but "
                f"strategy.run is called eagerly; call strategy.run in a tf.function, or pass the "
                f"tf.function to strategy.run"
            )
        self._written.setdefault(id(variable), variable)

    def agree(self) -> List[Fetch]:
        """Averages the statistics that the replicas have written, when all replicas are done.

        All workers must have written the same ones.

        Returns:
            The operations that write the averages, for a graph that a session runs.
        """
        self._watching = False
        variables = list(self._written.values())
        if not variables:
            return []
        assigned = []
        sums = self._sum_between_workers([self._local_sum(variable) for variable in variables])
        for variable, total in zip(variables, sums):
            mean = tf.cast(total / tf.cast(self._replicas(), total.dtype), variable.dtype)
            for part in variable.values:
                with tf.device(part.device):
                    assigned.append(part.assign(mean, read_value=False))
        return assigned

    def may_have_changed(self, variable: tf.Variable) -> bool:
        """Returns False for a statistic that the replica function has not written."""
        is_known = any(variable is each for each in self.known())
        return id(variable) in self._written or not is_known

    def forget(self) -> None:
        """Ends the watch of the replica function."""
        self._watching, self._graph = False, None
        self._written.clear()
        self._shares.clear()

    def averaged(self) -> List[tf.Variable]:
        """Returns the statistics that are averaged when a replica function writes them."""
        return [each for each in self.known() if _is_averaged(each)]

    def known(self) -> List[tf.Variable]:
        """Returns the statistics of all models."""
        return [variable for variable in (known() for known in self._known) if variable is not None]

    def _local_sum(self, variable: tf.Variable) -> tf.Tensor:
        with tf.device(variable.values[0].device):
            parts = [_widened(part.read_value()) for part in variable.values]
            return tf.add_n([_weighted(part, share) for part, share in zip(parts, self._shares)])


class _Statistic(compat.MirroredVariable):
    """A variable that reports writes by each replica."""

    def _update_replica(self, update_fn, value, **kwargs):
        self._distribute_strategy.extended.statistics.note(self)
        return super()._update_replica(update_fn, value, **kwargs)


class _StatisticWhenRead(WorkerVariable):
    """The same for variables of Keras 2, whose replicas are averaged when they are read."""

    def _update_replica(self, update_fn, value, **kwargs):
        self._distribute_strategy.extended.statistics.note(self)
        return super()._update_replica(update_fn, value, **kwargs)


def _is_statistic(variable: tf.Variable) -> bool:
    if variable.trainable or not variable.dtype.is_floating or not hasattr(variable, "values"):
        return False
    wanted = "MEAN" if compat.is_sync_on_read_variable(variable) else "NONE"
    return variable.aggregation == getattr(tf.VariableAggregation, wanted)


def _is_averaged(variable: tf.Variable) -> bool:
    return not (ownership.belongs_to_replica(variable) or ownership.belongs_to_optimizer(variable))


def _widened(value: tf.Tensor) -> tf.Tensor:
    return tf.cast(value, tf.float32) if value.dtype.size < 4 else value


def _weighted(value: tf.Tensor, share: Optional[tf.Tensor]) -> tf.Tensor:
    """Returns `value` times `share`, or 0 for a replica without rows, whose value may be NaN."""
    if share is None:
        return value
    return tf.where(share > 0, value, tf.zeros_like(value)) * tf.cast(share, value.dtype)
