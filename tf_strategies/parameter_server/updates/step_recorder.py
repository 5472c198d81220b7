"""Keeps what a training step has begun with, so that the step can be repeated: its batch, and the state of this worker."""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Optional, Sequence

import tensorflow as tf

from tf_strategies.types import Structure

__all__ = ["RecordedStep", "StepRecorder"]


class RecordedStep(NamedTuple):
    """Holds what one step has begun with.

    Attributes:
        element: the element of the dataset, as the step has got it.
        variables: the variables of this worker alone: sums of metrics, states of random numbers.
        values: their values before the step.
    """

    element: Structure
    variables: Sequence[tf.Variable]
    values: Sequence[tf.Tensor]

    def restore(self) -> None:
        """Gives this worker the state in which the step began."""
        for variable, value in zip(self.variables, self.values):
            variable.assign(value)


class _Trace(NamedTuple):
    """Holds what the calls of one traced step keep.

    Attributes:
        queue: a queue that holds what one step keeps, until it is taken.
        specs: the structure of the element.
        count: the number of its tensors.
        variables: the variables that are kept.
    """

    queue: tf.queue.FIFOQueue
    specs: Structure
    count: int
    variables: Sequence[tf.Variable]


class StepRecorder:
    """Keeps what each step has begun with, until it is taken. Only tensors are held, which are not copied.

    Args:
        device: of this worker.
        variables: returns the variables of this worker alone.

    Attributes:
        is_on: whether steps are kept that are now called or traced.
    """

    is_on = False

    def __init__(self, device: str, variables: Callable[[], List[tf.Variable]]) -> None:
        self._device, self.variables = device, variables
        self._traces: List[_Trace] = []
        with tf.init_scope(), tf.device(device):
            self._number = tf.Variable(-1, dtype=tf.int64, trainable=False)

    def record(self, element: Structure, number: tf.Tensor) -> None:
        """Keeps a step. Call it in the step, before anything else.

        Args:
            element: the element of the dataset that the step has got.
            number: the number of the step in the ledger, [] int64.
        """
        variables = self.variables()
        flat = tf.nest.flatten(element, expand_composites=True)
        with tf.device(self._device):
            kept = [*flat, *(variable.read_value() for variable in variables)]
            trace = self._trace(element, kept, variables)
            trace.queue.enqueue(kept)
            self._number.assign(number)

    def _trace(
        self, element: Structure, kept: Sequence[tf.Tensor], variables: Sequence[tf.Variable]
    ) -> _Trace:
        specs = tf.nest.map_structure(tf.type_spec_from_value, element)
        dtypes = [each.dtype for each in kept]
        if tf.executing_eagerly():
            for trace in self._traces:
                if trace.queue.dtypes == dtypes and _are_same(trace.variables, variables):
                    return trace._replace(specs=specs)
        with tf.init_scope(), tf.device(self._device):
            queue = tf.queue.FIFOQueue(2, dtypes)
        made = _Trace(queue, specs, len(kept) - len(variables), variables)
        self._traces.append(made)
        return made

    def take(self) -> Optional[RecordedStep]:
        """Removes what the last step has kept, and returns it; None if there is nothing."""
        for trace in reversed(self._traces):
            if int(trace.queue.size()):
                found = trace.queue.dequeue()
                flat = found if isinstance(found, (list, tuple)) else [found]
                element = tf.nest.pack_sequence_as(trace.specs, flat[: trace.count], expand_composites=True)
                return RecordedStep(element, trace.variables, flat[trace.count :])
        return None

    def number(self) -> int:
        """Returns the number of the last step that has read it."""
        return int(self._number.numpy())

    def forget_traces(self) -> None:
        """Forgets functions that will not run again."""
        self._traces.clear()


def _are_same(some: Sequence[tf.Variable], others: Sequence[tf.Variable]) -> bool:
    return len(some) == len(others) and all(one is other for one, other in zip(some, others))
