"""Keeps what a training step begins with, so that the step can be repeated: its batch, and the state of this worker."""

from __future__ import annotations

import operator
from typing import Callable, List, NamedTuple, Sequence, Tuple

import tensorflow as tf

from tf_strategies.types import BatchIterator, Structure

__all__ = ["RecordedStep", "StepRecorder"]

_KEPT_STARTS = 4  # models, or datasets, that are used in turn


class RecordedStep(NamedTuple):
    """Holds what one step begins with.

    Attributes:
        spec: the spec of the elements of the dataset.
        element: the element that the step takes.
        variables: the variables of this worker alone: sums of metrics, states of random numbers.
        values: their values before the step.
    """

    spec: Structure
    element: Structure
    variables: Sequence[tf.Variable]
    values: Sequence[tf.Tensor]

    def restore(self) -> None:
        """Gives this worker the state in which the step began."""
        for variable, value in zip(self.variables, self.values):
            variable.assign(value)


class StepRecorder:
    """Keeps what steps begin with. Only tensors are held, which are not copied.

    A call that a lost server cuts off could take a batch from a dataset, and lose it. So each batch is taken before the call,
    which gets an iterator over this batch.

    Args:
        device: of this worker.
        variables: returns the variables of this worker alone.

    Attributes:
        took_others: whether there were steps that are not kept: it may be set to False again.
    """

    def __init__(self, device: str, variables: Callable[[], List[tf.Variable]]) -> None:
        self._device, self.variables = device, variables
        self._feeds: List[_Feed] = []
        self._starts: List[_Start] = []
        self._is_open, self.took_others = False, False
        with tf.init_scope(), tf.device(device):
            self._number = tf.Variable(-1, dtype=tf.int64, trainable=False)

    def note_step(self, number: tf.Tensor) -> None:
        """Notes a step that updates variables on servers. Call it in the step.

        Args:
            number: its number in the ledger, [] int64.
        """
        self.took_others = self.took_others or not self._is_open
        with tf.device(self._device):
            self._number.assign(number)

    def number(self) -> int:
        """Returns the number of the step that `begin` has begun; -1 if there was none."""
        self._is_open = False
        return int(self._number.numpy())

    def begin(self, data: BatchIterator) -> RecordedStep:
        """Returns what a step begins with that takes the next element of an iterator."""
        variables, spec = self.variables(), data.element_spec
        start = next((each for each in self._starts if each.is_for(spec, variables)), None)
        if start is None:
            with tf.init_scope(), tf.device(self._device):
                start = _Start(spec, variables, self._number)
            self._starts = [*self._starts[1 - _KEPT_STARTS :], start]
        element, values = start.take(data)
        self._is_open = True
        return RecordedStep(spec, element, variables, values)

    def iterator(self, step: RecordedStep) -> BatchIterator:
        """Returns an iterator over the element of a step, with the spec of the dataset, for which functions are traced."""
        feed = next((each for each in self._feeds if each.spec == step.spec), None)
        if feed is None:
            with tf.init_scope(), tf.device(self._device):
                feed = _Feed(step.spec)
            self._feeds.append(feed)
        feed.put(step.element)
        return feed.iterator

    def forget_iterators(self) -> None:
        """Forgets the iterators, one of which may hold an element that was not taken."""
        self._feeds.clear()


class _Start:
    """Takes an element, and reads variables, in one call of a compiled function. Single operations took three times as long.

    Args:
        spec: the spec of the elements.
        variables: the variables.
        number: the variable that is set to -1.
    """

    def __init__(self, spec: Structure, variables: Sequence[tf.Variable], number: tf.Variable) -> None:
        self._spec, self._variables, self._number = spec, list(variables), number
        self._compiled = tf.function(self._take)

    def is_for(self, spec: Structure, variables: Sequence[tf.Variable]) -> bool:
        same = len(variables) == len(self._variables)
        return same and all(map(operator.is_, variables, self._variables)) and spec == self._spec

    def take(self, data: BatchIterator) -> Tuple[Structure, Sequence[tf.Tensor]]:
        compiled = isinstance(data, tf.data.Iterator)
        found: Tuple[Structure, Sequence[tf.Tensor]] = (self._compiled if compiled else self._take)(data)
        return found

    def _take(self, data: BatchIterator) -> Tuple[Structure, Sequence[tf.Tensor]]:
        element = data.get_next()
        self._number.assign(-1)
        return element, [each.read_value() for each in self._variables]


class _Feed:
    """An iterator over elements that are given to it one by one.

    Args:
        spec: the spec of the elements.

    Attributes:
        spec: the spec of the elements.
        iterator: the iterator.
    """

    def __init__(self, spec: Structure) -> None:
        self.spec = spec
        parts = tf.nest.flatten(spec, expand_composites=True)
        queue = self._queue = tf.queue.FIFOQueue(1, [each.dtype for each in parts])

        def element(_: tf.Tensor) -> Structure:
            found = queue.dequeue()
            flat = found if isinstance(found, (list, tuple)) else [found]
            for tensor, part in zip(flat, parts):
                tensor.set_shape(part.shape)
            return tf.nest.pack_sequence_as(spec, flat, expand_composites=True)

        options = tf.data.Options()
        options.autotune.enabled = False
        self.iterator = iter(tf.data.Dataset.from_tensors(0).repeat().map(element).with_options(options))

    def put(self, element: Structure) -> None:
        flat = tf.nest.flatten(element, expand_composites=True)
        self._queue.enqueue([each for each in flat if each is not None])
