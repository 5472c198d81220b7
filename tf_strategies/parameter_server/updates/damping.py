"""Corrects gradients that are stale when they reach a server."""

from __future__ import annotations

import abc
import weakref
from typing import Dict, List, NamedTuple, Optional

import tensorflow as tf

from tf_strategies.parameter_server.updates.step import Step
from tf_strategies.parameter_server.variables.parts import Part
from tf_strategies.types import TensorOrSlices

__all__ = ["Compensation", "Damping", "Division"]


class Damping(abc.ABC):
    """Corrects a stale gradient on the server, before it is applied."""

    def was_read(self, step: Step, part: Part, value: tf.Tensor, rows: Optional[tf.Tensor]) -> None:
        """Does the same as `UpdateRule.was_read`."""
        del step, part, value, rows

    @abc.abstractmethod
    def damped(
        self, step: Step, part: Part, gradient: TensorOrSlices, staleness: tf.Tensor
    ) -> TensorOrSlices:
        """Returns the corrected gradient, a tensor or IndexedSlices like the original.

        Args:
            step: the step that computed the gradient.
            part: the part of the variable that it will update; operations run on its server.
            gradient: a tensor or IndexedSlices of the part's shape, on the same server.
            staleness: [] int64, on the first server.
        """


class Division(Damping):
    """Divides a gradient by its staleness if that is above 1 (Zhang, Gupta, Lian, Liu 2016, "Staleness-aware async-SGD").

    With SGD, with or without momentum, this divides the learning rate. Optimizers that normalize by the size
    of the gradients (Adam, RMSprop, Adagrad) undo most of it: a stale gradient has less weight in their
    averages, but steps do not become shorter.
    """

    def damped(
        self, step: Step, part: Part, gradient: TensorOrSlices, staleness: tf.Tensor
    ) -> TensorOrSlices:
        divisor = step.cached((part.device, "divisor"), lambda: tf.maximum(staleness, 1))
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(
                _divided(gradient.values, divisor), gradient.indices, gradient.dense_shape
            )
        return _divided(gradient, divisor)


def _divided(values: tf.Tensor, divisor: tf.Tensor) -> tf.Tensor:
    return values / tf.cast(divisor, values.dtype)


class _Read(NamedTuple):
    """The values of a part that were read on its server: all values (`rows` is None), or those of rows [n], [n, ...]."""

    value: tf.Tensor
    rows: Optional[tf.Tensor]


class Compensation(Damping):
    """Corrects a gradient to first order for the updates since its weights were read (Zheng et al. 2017, DC-ASGD, equation 10).

    The result is g + lambda g * g * (w - w_read), elementwise, where lambda g * g approximates the diagonal
    of the Hessian. If w has not changed since, the result is g, bit by bit. For sparse gradients, only the
    rows of the gradient are corrected.

    The server in the paper keeps a copy of the weights for each worker. Here the server keeps a reference to
    the value that it has sent, from the read until the update. No additional bytes are sent. Additional
    memory is needed only if another update comes in between, because TensorFlow then writes to a new buffer:
    at most the size of the variable for each worker in a step.

    Args:
        strength: the paper's lambda.
    """

    def __init__(self, strength: float) -> None:
        self._strength = strength
        self._read: weakref.WeakKeyDictionary[Step, Dict[int, List[_Read]]] = weakref.WeakKeyDictionary()

    def was_read(self, step: Step, part: Part, value: tf.Tensor, rows: Optional[tf.Tensor]) -> None:
        if not step.is_top:
            return  # Updates cannot use a value that was read in a branch or loop.
        if rows is not None:
            rows = tf.reshape(rows, [-1])
            value = tf.reshape(value, tf.concat([tf.shape(rows), part.variable.shape[1:].as_list()], axis=0))
        reads = self._read.setdefault(step, {})
        earlier = [] if rows is None else reads.get(id(part.variable), [])
        reads[id(part.variable)] = [*earlier, _Read(value, rows)]

    def damped(
        self, step: Step, part: Part, gradient: TensorOrSlices, staleness: tf.Tensor
    ) -> TensorOrSlices:
        reads = self._read.get(step, {}).get(id(part.variable))
        if not reads:
            raise ValueError(
                f'{part.variable.name}: damping="compensate" needs the value that a gradient was computed at, and the replica '
                "function has not read it, or rows of it inside tf.cond or a loop; read it at the top of the function that "
                "applies the gradient, or use another damping"
            )
        if isinstance(gradient, tf.IndexedSlices):
            values, indices = gradient.values, gradient.indices
            now = part.variable.sparse_read(indices)
            then = _rows_read(reads, indices, now)
            return tf.IndexedSlices(
                self._compensated(values, _summed_by_row(values, indices), now - then),
                indices,
                gradient.dense_shape,
            )
        now = part.variable.read_value()
        return self._compensated(gradient, gradient, now - _all_read(reads, now))

    def _compensated(self, gradient: tf.Tensor, total: tf.Tensor, moved: tf.Tensor) -> tf.Tensor:
        strength = tf.constant(self._strength, gradient.dtype)
        return gradient + strength * gradient * (total * tf.cast(moved, gradient.dtype))


def _summed_by_row(values: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """Returns, for each of the values [n, ...], the sum of all values with the same index [n]."""
    different, which = tf.unique(indices)
    return tf.gather(tf.math.unsorted_segment_sum(values, which, tf.size(different)), which)


def _all_read(reads: List[_Read], now: tf.Tensor) -> tf.Tensor:
    """Returns all values of a part as they were read. Rows that were not read count as unchanged."""
    then = now
    for read in reads:
        then = read.value if read.rows is None else _with_rows(then, read)
    return then


def _with_rows(value: tf.Tensor, read: _Read) -> tf.Tensor:
    return tf.tensor_scatter_nd_update(value, read.rows[:, tf.newaxis], read.value)


def _rows_read(reads: List[_Read], indices: tf.Tensor, now: tf.Tensor) -> tf.Tensor:
    """Returns the values of the rows `indices` [n] as they were read.

    Rows that were not read count as unchanged from `now` [n, ...].
    """
    then = now
    for read in reads:
        if read.rows is None:
            then = tf.gather(read.value, indices)
            continue
        order = tf.argsort(read.rows)
        ascending = tf.gather(read.rows, order)
        wanted = tf.cast(indices, ascending.dtype)
        place = tf.minimum(tf.searchsorted(ascending, wanted), tf.size(ascending) - 1)
        found = tf.equal(tf.gather(ascending, place), wanted)
        rows = tf.gather(read.value, tf.gather(order, place))
        then = tf.where(tf.reshape(found, [-1] + [1] * (rows.shape.rank - 1)), rows, then)
    return then
