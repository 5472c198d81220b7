"""Finds out that workers do not read the same batches, where each keeps its share of what should be one common order.

With AutoShardPolicy.DATA every worker reads the whole dataset and keeps its share of every batch. If a generator shuffles by
itself, or `map(deterministic=False)` hands on what is ready first, the orders differ, and rows are read twice or never.

A watched dataset hands the first batches of each iteration to Python before they are split, where `row_numbers` are formed of
each component. These samples go to worker 0 over the control plane, which compares them while training goes on. There is no
collective, so nothing waits, and a worker that looks at its data alone does no harm. A difference ends the group with an error
on all workers. Iterations are counted as TensorFlow makes an iterator, as it draws the order of a seeded `shuffle`: an iterator
that is made and not used counts as well.

A component that agrees, and whose rows are not all alike, shows that the order agrees: the others may differ by random
augmentation. So does one whose rows are mostly alike, such as tokens of which some are masked at random. If all components
differ, the order differs; unless it is a single component of images or other real numbers, and random operations or Python code
could have changed its rows. That is only warned about.
"""

from __future__ import annotations

import hashlib
import logging
import weakref
from typing import Any, List, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.collective.worker_group import ConnectedGroup
from tf_strategies.native.first_batches import show_first_batches

__all__ = ["BatchCheck", "Sample", "differ", "row_numbers"]

_log = logging.getLogger("tf_strategies")

_BATCHES = 2
_ROWS = 32
_ELEMENTS = 1024
_CELLS = 16
_LETTERS = 512  # from each end of a string
_FIRST_COMPONENTS, _LAST_COMPONENTS = 12, 4  # labels come last
# Rounding differs between kinds of CPU by less than this, relative to the largest number.
_TOLERANCE = 1e-4
# Cohen's kappa of the cells of two samples: 1 where all agree, 0 where no more do than in other rows.
_ALIKE = 0.4
_REAL = (tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.uint8, tf.int8)
_REAL_IN_NUMPY = tuple(np.dtype(each.as_numpy_dtype) for each in _REAL)
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
    """Holds what is compared of one component of a batch.

    Attributes:
        real: whether the numbers are compared within a tolerance.
        numbers: one for each row, or for some rows of a large batch.
        cells: of integers with several to a row, at most 16 of each row, one row after the other.
    """

    real: bool
    numbers: List[float]
    cells: Sequence[int] = ()


class BatchCheck:
    """Watches one dataset that is distributed; made on all workers alike.

    Args:
        group: the workers.
        dataset: the dataset before it is split.
    """

    def __init__(self, group: ConnectedGroup, dataset: tf.data.Dataset) -> None:
        self._group = weakref.ref(group)
        self._dataset = weakref.ref(dataset)
        self._shown = str(dataset.element_spec)
        self._warned = False
        self._components = _components(dataset.element_spec)
        self._topic = group.new_topic(weakref.WeakMethod(self._judge))

    def watch(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Returns the dataset with the same elements, which tells of the first batches of each iteration while this lives."""
        if not self._components:
            return dataset
        method = weakref.WeakMethod(self._tell)

        def tell(*numbers: np.ndarray) -> np.ndarray:  # TensorFlow keeps it for ever
            method_of_living = method()
            if method_of_living is not None:
                method_of_living(*numbers)
            return np.int64(0)

        def show(iteration: tf.Tensor, batch: tf.Tensor, element: Any) -> None:
            flat = tf.nest.flatten(element, expand_composites=True)
            tf.numpy_function(tell, [iteration, batch, *(flat[i] for i in self._components)], tf.int64)

        return show_first_batches(dataset, _BATCHES, show)

    def _tell(self, iteration: np.ndarray, batch: np.ndarray, *parts: np.ndarray) -> None:
        """Sends the sample of a batch. Called by the threads of tf.data.

        Args:
            iteration: the number of the iteration that the batch belongs to.
            batch: its number in its iteration.
            parts: the components that are looked at.
        """
        group = self._group()
        if group is not None:
            samples = [[is_real(part), row_numbers(part).tolist(), cells(part).tolist()] for part in parts]
            group.compare(self._topic, f"{int(iteration)} {int(batch)}", samples)

    def _judge(self, key: str, names: Sequence[str], samples: Sequence[Any]) -> Optional[str]:
        """Returns the error if two workers' samples of a batch differ, else None; on worker 0."""
        first, second = ([Sample(bool(real), *rest) for real, *rest in each] for each in samples)
        found = differ(first, second)
        if not found:
            return None
        said = (
            f"{names[0]} and {names[1]} read different data: batch {key.rpartition(' ')[2]} of an iteration over a dataset "
            f"with elements {self._shown} is not the same. {_REMEDY}"
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


def is_real(component: np.ndarray) -> bool:
    """Returns whether the numbers of a component are compared within a tolerance."""
    return component.dtype in _REAL_IN_NUMPY


def row_numbers(component: np.ndarray) -> np.ndarray:
    """Returns one number for each row of a batch: a weighted sum [rows] float64, or a hash [rows] int64.

    At most 32 rows and 1,024 elements of each are looked at, evenly spread.
    """
    table = _some(component, _ELEMENTS)
    if not is_real(component):
        return np.array([_hash(row) for row in table], np.int64)
    values = table.astype(np.float64)
    values = np.where(np.isfinite(values), values, 0.0)
    return (values * (1 + np.cos(np.arange(values.shape[1])))).sum(axis=1)


def cells(component: np.ndarray) -> np.ndarray:
    """Returns some elements of the rows that `row_numbers` looks at; none of real numbers, strings or one to a row."""
    table = _some(component, _CELLS)
    of_use = component.dtype.kind in "iu" and not is_real(component) and table.shape[1] > 1
    return table.reshape(-1) if of_use else np.zeros([0], np.int64)


def _some(component: np.ndarray, most: int) -> np.ndarray:
    """Returns at most 32 rows with at most so many elements of each, evenly spread."""
    rows = component.shape[0] if component.ndim else 1
    length = component.size // max(rows, 1)
    table = component.reshape(rows, length)
    return table[:: max(-(-rows // _ROWS), 1), :: max(-(-length // most), 1)]


def _hash(row: np.ndarray) -> int:
    if row.dtype == object:  # strings
        parts = (b"%d:%s%s" % (len(each), each[:_LETTERS], each[-_LETTERS:]) for each in row)
        data = b"".join(parts)
    else:
        data = row.tobytes()
    return int.from_bytes(hashlib.blake2b(data, digest_size=6).digest(), "big")


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
        elif _rows_are_mostly_alike(mine, theirs):
            return []
        elif not _differ_by_rounding(mine, theirs) and mine not in found:
            found.append(mine)
    return found


def _rows_are_mostly_alike(first: Sample, second: Sample) -> bool:
    """Returns whether the cells of each row agree far more often than those of the row before it do."""
    if not first.cells or (len(first.cells), len(first.numbers)) != (len(second.cells), len(second.numbers)):
        return False
    mine, theirs = (np.reshape(each.cells, [len(each.numbers), -1]) for each in (first, second))
    same, other = np.mean(mine == theirs), np.mean(mine == np.roll(theirs, 1, axis=0))
    return bool(same - other > _ALIKE * (1 - other))


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
        # Ragged and sparse tensors are compared by their values, because their row lengths may be alike in all batches.
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
