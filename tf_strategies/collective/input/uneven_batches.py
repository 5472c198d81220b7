"""Handles batches of unequal size: counts the rows of each replica, and cleans the contributions of replicas without rows.

A replica with an empty batch takes part with weight zero. Its results may be NaN, such as the mean over no
rows, and must not reach other replicas. If a batch can be empty, values that are not finite are removed from
the replica's contributions to reductions, and from its state. A replica with rows is not affected.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.collective.worker_group import Collectives
from tf_strategies.slow_worker import ROWS
from tf_strategies.types import PerReplica, Result, Structure

__all__ = ["BatchRows"]

_ITERATOR_OPS = (
    "IteratorGetNext",
    "IteratorGetNextSync",
    "OptionalGetValue",
    "MultiDeviceIteratorGetNextFromShard",
)


class BatchRows:
    """Counts the rows of each replica's batch while replica functions run.

    Args:
        group: the workers.
        local_replicas: the number of replicas of this worker.
    """

    def __init__(self, group: Collectives, local_replicas: int) -> None:
        self._group = group
        self._local_replicas = local_replicas
        self._rows: List[tf.Tensor] = []
        self._before: Dict[Tuple[int, int], tf.Tensor] = {}
        self._shares: List[Tuple[Optional[tf.Graph], List[tf.Tensor]]] = []
        self._for_functions: Optional[_RowsForFunctions] = None
        self._graph: Optional[tf.Graph] = None  # in which replica functions run; None for eager execution

    def watch(
        self,
        fn: Callable[..., Result],
        arguments: Structure,
        state: Iterable[tf.Variable],
        *,
        shapes_are_agreed: bool,
        may_have_changed: Callable[[tf.Variable], bool] = lambda variable: True,
    ) -> Callable[..., Result]:
        """Returns the replica function `fn`, watched until `forget`.

        Args:
            fn: the function that every replica runs.
            arguments: the arguments, per replica.
            state: variables that each replica writes by itself. They are kept finite.
            shapes_are_agreed: whether a batch with a static number of rows has this number on all workers.
            may_have_changed: returns False, after `fn` has run, for a variable of the state that it has not written.
        """
        replicas = [_of_replica(replica, arguments) for replica in range(self._local_replicas)]
        rows = _rows(replicas, shapes_are_agreed)
        self._graph = _current_graph()
        self._rows = rows or []
        if self._for_functions is not None:
            self._for_functions.write(self._rows)
        if rows is None:
            return fn
        if all(tf.get_static_value(self._has_rows(replica)) for replica in range(self._local_replicas)):
            return fn
        state = list(state)
        if not tf.executing_eagerly():
            # A graph does not keep the variables alive that it reads. The model of a metric may be deleted
            # before the graph.
            tf.compat.v1.get_default_graph().variables_kept_by_empty_batch = state

        @tf.autograph.experimental.do_not_convert
        def watched(*args: Any, **kwargs: Any) -> Result:
            replica = self.local_replica()
            for variable in state:
                self._before[replica, id(variable)] = variable.read_value()
            result = fn(*args, **kwargs)
            changed = [variable for variable in state if may_have_changed(variable)]
            if changed:
                _unless(self._has_rows(replica), lambda: self._settle(changed, replica))
            return result

        return watched

    def forget(self) -> None:
        """Ends the watch of the replica function."""
        self._rows, self._shares, self._graph = [], [], None
        self._before.clear()

    def share(self) -> Optional[tf.Tensor]:
        """Returns the rows of the running replica divided by the mean over all replicas, [] float64; see `shares`."""
        shares = self.shares()
        return None if shares is None else shares[self.local_replica()]

    def shares(self) -> Optional[List[tf.Tensor]]:
        """Returns the rows of each local replica divided by the mean over all replicas, [] float64.

        The first call in a graph is a collective.

        Returns:
            None if the shapes show that all replicas have the same number of rows. A function within the replica function gets
            numbers all the same, because other steps may call it.
        """
        if not self._rows and not self._in_function():
            return None
        graph = _current_graph()
        for asked, shares in self._shares:
            if asked is graph:
                return shares
        with tf.device("/device:CPU:0"):
            rows = [tf.cast(self._count(replica), tf.float64) for replica in range(self._local_replicas)]
            everywhere = self._group.all_reduce([tf.add_n(rows)], name=ROWS)[0]
            replicas = self._group.size_in_graph() * self._local_replicas
            shares = [_share(count * replicas, everywhere) for count in rows]
        self._shares.append((graph, shares))
        return shares

    def of_worker(self) -> tf.Tensor:
        """Returns the rows of all replicas of this worker, [] int64; 1 if all workers have the same number of rows."""
        return tf.add_n(self._rows) if self._rows else tf.constant(1, tf.int64)

    def _in_function(self) -> bool:
        """Returns True in a function that the replica function calls and that is being traced."""
        graph = _current_graph()
        return None not in (graph, self._graph) and not compat.is_branch_of(graph, self._graph)

    def _count(self, replica: int) -> tf.Tensor:
        """Returns the rows of a replica, [] int64, for use in the current graph."""
        if not self._in_function():
            return self._rows[replica]
        if self._for_functions is None:
            self._for_functions = _RowsForFunctions(self._local_replicas)
            with self._graph.as_default():
                self._for_functions.write(self._rows)
        return self._for_functions.read(replica)

    def contributions(self, value: PerReplica) -> PerReplica:
        """Returns the per-replica value, cleaned for a reduction."""
        if not self._rows:
            return value
        if compat.is_sync_on_read_variable(value):
            return compat.per_replica(
                tuple(
                    self._settled(tf.convert_to_tensor(part), replica, value)
                    for replica, part in enumerate(value.values)
                )
            )
        per_replica = isinstance(value, tf.distribute.DistributedValues)
        if self._local_replicas > 1 and not per_replica:
            return value
        parts = value.values if per_replica else (value,)
        if not all(isinstance(part, tf.Tensor) and part.dtype.is_floating for part in parts):
            return value
        return compat.per_replica(tuple(self._finite(part, replica) for replica, part in enumerate(parts)))

    def _settle(self, state: List[tf.Variable], replica: int) -> bool:
        for variable in state:
            # Directly, so that it does not count as a write of the replica function.
            part = variable.values[replica] if hasattr(variable, "values") else variable
            part.assign(self._settled(part.read_value(), replica, variable))
        return True

    def _settled(self, value: tf.Tensor, replica: int, variable: tf.Variable) -> tf.Tensor:
        """Returns the value of a replica's variable, with numbers that are not finite replaced by the old value.

        This applies only to a replica without rows.
        """
        before = self._before.get((replica, id(variable)))
        if before is None or not value.dtype.is_floating:
            return value
        return tf.where(self._has_rows(replica) | tf.math.is_finite(value), value, before)

    def _finite(self, value: tf.Tensor, replica: int) -> tf.Tensor:
        """Returns `value`. If the replica has no rows, numbers that are not finite are replaced by 0.

        If the replica has rows, this does not read the value.
        """
        if tf.get_static_value(self._has_rows(replica)):
            return value
        with tf.device(value.device):
            chosen = tf.cond(
                self._has_rows(replica),
                lambda: value,
                lambda: tf.where(tf.math.is_finite(value), value, tf.zeros([], value.dtype)),
            )
        chosen.set_shape(value.shape)
        return chosen

    def _has_rows(self, replica: int) -> tf.Tensor:
        rows = self._count(replica)
        known = tf.get_static_value(rows)
        return rows > 0 if known is None else tf.constant(bool(known > 0))

    def local_replica(self) -> int:
        """Returns the local number of the replica that runs on this thread."""
        if self._local_replicas == 1:
            return 0
        everywhere = tf.distribute.get_replica_context().replica_id_in_sync_group
        return int(tf.get_static_value(everywhere)) % self._local_replicas


class _RowsForFunctions:
    """Holds the rows of each replica in variables, for functions that a replica function calls.

    A tf.function keeps the tensors that it captured when it was traced. It may be called later from another graph, where they are
    out of scope. A variable belongs to no graph.
    """

    def __init__(self, local_replicas: int) -> None:
        with tf.init_scope(), tf.device("/device:CPU:0"):
            self._rows = [
                compat.ResourceVariable(0, dtype=tf.int64, trainable=False, name=f"rows_of_replica_{replica}")
                for replica in range(local_replicas)
            ]

    def write(self, rows: List[tf.Tensor]) -> None:
        """Sets the rows of a step; [] stands for the same number on all replicas."""
        for variable, count in zip(self._rows, rows or [1] * len(self._rows)):
            variable.assign(count)

    def read(self, replica: int) -> tf.Tensor:
        return self._rows[replica].read_value()


def _share(rows: tf.Tensor, everywhere: tf.Tensor) -> tf.Tensor:
    """Returns `rows` / `everywhere`, or 1 where nobody has rows."""
    return tf.where(everywhere > 0, tf.math.divide_no_nan(rows, everywhere), tf.ones_like(everywhere))


def _current_graph() -> Optional[tf.Graph]:
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def _of_replica(replica: int, arguments: Structure) -> List[object]:
    return [
        part.values[replica] if isinstance(part, tf.distribute.DistributedValues) else part
        for part in tf.nest.flatten(arguments)
    ]


def _unless(condition: tf.Tensor, action: Callable[[], bool]) -> None:
    """Runs the action unless the condition holds. Adds no tf.cond if the condition is known."""
    if tf.get_static_value(condition) is None:
        tf.cond(condition, lambda: True, action)
    elif not tf.get_static_value(condition):
        action()


def _rows(replicas: List[List[object]], shapes_are_agreed: bool) -> Optional[List[tf.Tensor]]:
    """Returns the rows of each replica's batch, [] int64; None if all replicas are known to have the same number.

    The batch is the first argument whose number of rows is unknown, or 0, on some replica.
    """
    for parts in zip(*replicas):
        if any(_is_open(part, shapes_are_agreed) for part in parts):
            return [_rows_of(part) for part in parts]
    return None


def _is_open(part: object, shapes_are_agreed: bool) -> bool:
    """Returns True if other workers may have a different number of rows."""
    if isinstance(part, (tf.RaggedTensor, tf.SparseTensor)):
        return True
    if not isinstance(part, tf.Tensor) or not part.shape.rank:
        return False
    if tf.executing_eagerly() or not part.shape[0]:
        return True
    return not shapes_are_agreed and not _comes_from_iterator(part)


def _comes_from_iterator(part: tf.Tensor) -> bool:
    """Returns True for a tensor that a distributed iterator returns in this function.

    Workers have agreed on its shape.
    """
    return part.op.type in _ITERATOR_OPS


def _rows_of(part: Union[tf.Tensor, tf.RaggedTensor, tf.SparseTensor]) -> tf.Tensor:
    if isinstance(part, tf.Tensor) and part.shape[0] is not None:
        return tf.constant(part.shape[0], tf.int64)
    if isinstance(part, tf.RaggedTensor):
        return tf.cast(part.nrows(), tf.int64)
    if isinstance(part, tf.SparseTensor):
        return part.dense_shape[0]
    return tf.shape(part, out_type=tf.int64)[0]
