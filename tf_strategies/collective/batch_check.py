"""Finds out that workers do not read the same batches, where each keeps its share of what should be one common order.

With AutoShardPolicy.DATA every worker reads the whole dataset and keeps its share of every batch. If a generator shuffles by
itself, or `map(deterministic=False)` hands on what is ready first, the orders differ, and rows are read twice or never.

A watched dataset takes a sample of the first batches of each iteration before they are split: `row_numbers` of each component.
The samples go to worker 0 over the control plane, which compares them while training goes on. There is no collective, so nothing
waits, and a worker that looks at its data alone does no harm. A difference ends the group with an error on all workers.

A component that agrees, and whose rows are not all alike, shows that the order agrees: the others may differ by random
augmentation. If all components differ, the order differs; unless it is a single component of images or other real numbers, and
random operations or Python code could have changed its rows. That is only warned about.
"""

from __future__ import annotations

import itertools
import logging
import weakref
from typing import Any, List, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow as tf

from tf_strategies._tf import compat

__all__ = ["BatchCheck", "Sample", "differ", "row_numbers"]

_log = logging.getLogger("tf_strategies")

_BATCHES = 2
_ROWS = 32
_ELEMENTS = 1024
_FIRST_COMPONENTS, _LAST_COMPONENTS = 12, 4  # labels come last
# Rounding differs between kinds of CPU by less than this, relative to the largest number.
_TOLERANCE = 1e-4
_REAL = (tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.uint8, tf.int8)
_EXACT = (tf.string, tf.bool, tf.int16, tf.uint16, tf.int32, tf.uint32, tf.int64, tf.uint64)

_REMEDY = (
    "Each worker keeps its share of every batch (AutoShardPolicy.DATA), so all must read the same rows in the same order; now "
    "some rows are used twice and others never. Set the same seed on all workers: `seed=` of `shuffle`, of "
    "`image_dataset_from_directory` or of `ImageDataGenerator.flow`, or keras.utils.set_random_seed before the data are made. A "
    "PyDataset, Sequence or generator that shuffles by itself must do so by a seed that is the same on all workers, or leave "
    "it to fit(shuffle=True). Do not use map(deterministic=False) or options.deterministic = False. Where each worker brings "
    "rows of its own, set options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF"
)


class Sample(NamedTuple):
    """What is compared of one component of a batch.

    Attributes:
        real: whether the numbers are compared within a tolerance.
        numbers: one for each row, or for some rows of a large batch.
    """

    real: bool
    numbers: List[float]


class BatchCheck:
    """Watches one dataset that is distributed; made on all workers alike.

    Args:
        group: the workers.
        dataset: the dataset before it is split.
    """

    def __init__(self, group, dataset: tf.data.Dataset) -> None:
        self._group = weakref.ref(group)
        self._dataset = weakref.ref(dataset)
        self._shown = str(dataset.element_spec)
        self._iterations = itertools.count()
        self._warned = False
        self._components = _components(dataset.element_spec)
        self._topic = group.new_topic(weakref.WeakMethod(self._judge))

    def watch(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Returns the dataset with the same elements, which tells of the first batches of each iteration while this lives."""
        if not self._components:
            return dataset
        method = weakref.WeakMethod(self._tell)

        def tell(*numbers: np.ndarray) -> np.ndarray:  # TensorFlow never lets go of it
            method_of_living = method()
            return np.int64(0) if method_of_living is None else method_of_living(*numbers)

        # Not inlined: each later batch would pay for the operations of a branch that is not taken.
        @tf.function(autograph=False, experimental_attributes={"_noinline": True})
        def look(iteration: tf.Tensor, batch: tf.Tensor, *parts: tf.Tensor) -> tf.Tensor:
            number = tf.numpy_function(tell, [iteration, batch, *map(row_numbers, parts)], tf.int64)
            return tf.ensure_shape(number, [])

        @tf.autograph.experimental.do_not_convert
        def step(state: Any, element: Any) -> Any:
            iteration, batch = state
            flat = tf.nest.flatten(element, expand_composites=True)
            parts = [flat[i] for i in self._components]
            iteration = tf.cond(
                batch < _BATCHES, lambda: look(iteration, batch, *parts), lambda: tf.identity(iteration)
            )
            return (iteration, batch + 1), element

        watched = dataset.scan((tf.constant(-1, tf.int64), tf.constant(0, tf.int64)), step)
        return watched if watched.element_spec == dataset.element_spec else dataset

    def _tell(self, iteration: np.ndarray, batch: np.ndarray, *numbers: np.ndarray) -> np.ndarray:
        """Sends the sample of a batch; returns the number of the iteration. Called by the threads of tf.data."""
        number = next(self._iterations) if iteration < 0 else int(iteration)
        group = self._group()
        if group is not None:
            sample = [[bool(part.dtype.kind == "f"), part.tolist()] for part in numbers]
            group.compare(self._topic, f"{number} {int(batch)}", sample)
        return np.int64(number)

    def _judge(self, key: str, names: Sequence[str], samples: Sequence[Any]) -> Optional[str]:
        """On worker 0: returns the error if two workers' samples of a batch differ, else None."""
        first, second = ([Sample(bool(real), list(numbers)) for real, numbers in each] for each in samples)
        found = differ(first, second)
        if not found:
            return None
        iteration, _, batch = key.partition(" ")
        said = (
            f"{names[0]} and {names[1]} read different data: batch {batch} of iteration {iteration} over a dataset with elements "
            f"{self._shown} is not the same. {_REMEDY}"
        )
        if self._may_be_augmentation(found):
            if not self._warned:
                _log.warning(
                    "It may be that %s. Seed random augmentation alike, and this line goes away.", said
                )
            self._warned = True
            return None
        return said

    def _may_be_augmentation(self, found: Sequence[Sample]) -> bool:
        dataset = self._dataset()
        if dataset is None or not all(each.real for each in found):
            return False
        operations = compat.operations_of_functions(dataset)
        if any(_is_random(name) for name in operations):
            return True
        return len(found) == 1 and any("PyFunc" in name for name in operations)


def row_numbers(component: tf.Tensor) -> tf.Tensor:
    """Returns one number for each row of a batch, or of 32 of its rows: a weighted sum [rows] float64 or a hash [rows] int64.

    Of each row, at most 1,024 elements are looked at, evenly spread.
    """
    rows = tf.concat([tf.shape(component), [1]], 0)[0]
    length = tf.size(component) // tf.maximum(rows, 1)
    table = tf.reshape(component, [rows, length])
    down, across = tf.maximum(-(-rows // _ROWS), 1), tf.maximum(-(-length // _ELEMENTS), 1)
    table = table[::down, ::across]
    if component.dtype in _EXACT:
        return tf.bitcast(tf.raw_ops.Fingerprint(data=table, method="farmhash64"), tf.int64)
    values = tf.cast(table, tf.float64)
    values = tf.where(tf.math.is_finite(values), values, tf.zeros_like(values))
    weights = 1 + tf.cos(tf.cast(tf.range(tf.shape(values)[1]), tf.float64))
    return tf.linalg.matvec(values, weights)


def differ(first: Sequence[Sample], second: Sequence[Sample]) -> List[Sample]:
    """Returns the components of a batch that differ, each once, if they show that two workers read different rows; else [].

    Real numbers that are equal but for rounding show neither that the order agrees nor that it does not.

    Raises:
        ValueError: the samples are not of the same components.
    """
    if [each.real for each in first] != [each.real for each in second]:
        raise ValueError("the samples of a batch are of different components")
    found: List[Sample] = []
    for mine, theirs in zip(first, second):
        if mine == theirs:
            if len(set(mine.numbers)) > 1:
                return []
        elif not _differ_by_rounding(mine, theirs) and mine not in found:
            found.append(mine)
    return found


def _differ_by_rounding(first: Sample, second: Sample) -> bool:
    if not first.real or len(first.numbers) != len(second.numbers):
        return False
    mine, theirs = np.asarray(first.numbers, float), np.asarray(second.numbers, float)
    largest = max(np.abs(mine).max(initial=0.0), np.abs(theirs).max(initial=0.0))
    return bool((np.abs(mine - theirs) <= _TOLERANCE * largest).all())


def _components(element_spec: Any) -> List[int]:
    """Returns the places, in a flat element, of the components that are looked at."""
    usable: List[int] = []
    place = 0
    for spec in tf.nest.flatten(element_spec):
        parts = tf.nest.flatten(spec, expand_composites=True)
        # Of ragged and sparse tensors the values: where they stand may be alike in all batches.
        at = {tf.RaggedTensorSpec: 0, tf.SparseTensorSpec: 1}.get(type(spec))
        usable += [
            place + i
            for i, part in enumerate(parts)
            if at in (None, i) and getattr(part, "dtype", None) in (*_REAL, *_EXACT)
        ]
        place += len(parts)
    if len(usable) <= _FIRST_COMPONENTS + _LAST_COMPONENTS:
        return usable
    return [*usable[:_FIRST_COMPONENTS], *usable[-_LAST_COMPONENTS:]]


def _is_random(operation: str) -> bool:
    if operation.startswith("RandomShuffle"):  # an order, of the arrays that Keras shuffles
        return False
    return any(
        word in operation for word in ("Random", "TruncatedNormal", "Multinomial", "Distorted", "RngRead")
    )
