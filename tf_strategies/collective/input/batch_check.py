"""Detects workers that do not read the same batches, although each keeps its share of one common order.

With AutoShardPolicy.DATA every worker reads the whole dataset and keeps its share of every batch. If a
generator shuffles by itself, or `map(deterministic=False)` returns elements in the order in which they are
ready, the orders differ. Some rows are then read twice and others never.

A watched dataset passes the first batches of each iteration to Python before they are split. There,
`row_numbers` are computed for each component. These samples go to worker 0 over the control plane, which
compares them while training continues. This is not a collective: no worker waits, and a worker may iterate
over its data alone. A difference ends the group with an error on all workers. Iterations are counted when
TensorFlow makes an iterator, since it draws the order of a seeded `shuffle` then. An iterator that is never
used counts, too.

If one component is equal on two workers, and its rows are not all the same, the order is the same; other
components may differ by random augmentation. This also holds for a component that is mostly equal, such as
tokens of which some are masked at random. If all components differ, the order differs. There is one
exception: a single component of images or other real numbers, which random operations or Python code may have
changed. This case only logs a warning.
"""

from __future__ import annotations

import hashlib
import logging
import weakref
from typing import List, NamedTuple, Optional, Sequence, Union

import numpy as np
import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.collective.worker_group import ConnectedGroup
from tf_strategies.native.first_batches import show_first_batches
from tf_strategies.types import Json, Structure

__all__ = ["UNEQUAL_ROWS", "BatchCheck", "Sample", "differ", "row_numbers"]

_log = logging.getLogger("tf_strategies")

UNEQUAL_ROWS = (
    "the components of a batch have different numbers of rows, and each would be split between the replicas by itself, so that "
    "they do not fit one another any more. Give what belongs to the whole batch, and not to its rows, as a constant or in a "
    "variable, or train each batch on one worker with distribute_datasets_from_function"
)
_BATCHES = 2
_ROWS = 32
_ELEMENTS = 1024
_CELLS = 16
_LETTERS = 512  # the number of bytes that are used from each end of a string
_FIRST_COMPONENTS, _LAST_COMPONENTS = 12, 4  # labels are the last components
# Rounding differs between kinds of CPU by less than this, relative to the largest number.
_TOLERANCE = 1e-4
# Cohen's kappa of the cells of two samples: 1 if all agree, 0 if no more agree than in different rows.
_ALIKE = 0.4
_REAL = (tf.float16, tf.bfloat16, tf.float32, tf.float64, tf.uint8, tf.int8)
_REAL_IN_NUMPY = tuple(np.dtype(each.as_numpy_dtype) for each in _REAL)
_EXACT = (tf.string, tf.bool, tf.int16, tf.uint16, tf.int32, tf.uint32, tf.int64, tf.uint64)

_REMEDY = (
    "Each worker keeps its share of every batch (AutoShardPolicy.DATA), so all workers must read the same "
    "rows in the same order. Otherwise some rows are used twice and others never. Set the same seed on all "
    "workers: `seed=` of `shuffle`, of "
    "`image_dataset_from_directory` or of `ImageDataGenerator.flow`, or keras.utils.set_random_seed before "
    "the data are made. A PyDataset, Sequence or generator that shuffles by itself must use a seed that is "
    "the same on all workers, or leave shuffling to fit(shuffle=True). Do not use map(deterministic=False) "
    "or options.deterministic = False. If each worker reads rows of its own, set "
    "options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF"
)


class Sample(NamedTuple):
    """Holds the sample of one component of a batch.

    Attributes:
        real: whether the numbers are compared within a tolerance.
        numbers: a number for each row, or for some rows of a large batch.
        cells: at most 16 elements of each row, row by row, if a row has several integers.
    """

    real: bool
    numbers: List[float]
    cells: Sequence[int] = ()


class BatchCheck:
    """Watches one distributed dataset. All workers make it in the same order.

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
        self._topic = group.new_topic(weakref.WeakMethod(self._compare))

    def watch(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """Returns a dataset with the same elements, which reports the first batches of each iteration while this object lives."""
        if not self._components:
            return dataset
        method = weakref.WeakMethod(self._tell)

        def tell(*numbers: np.ndarray) -> np.ndarray:  # TensorFlow keeps the function for ever
            method_of_living = method()
            if method_of_living is not None:
                method_of_living(*numbers)
            return np.int64(0)

        def show(iteration: tf.Tensor, batch: tf.Tensor, element: Structure) -> None:
            flat = tf.nest.flatten(element, expand_composites=True)
            with tf.control_dependencies([_assert_equal_rows(element, self._shown)]):
                tf.numpy_function(tell, [iteration, batch, *(flat[i] for i in self._components)], tf.int64)

        return show_first_batches(dataset, _BATCHES, show)

    def _tell(self, iteration: np.ndarray, batch: np.ndarray, *parts: np.ndarray) -> None:
        """Sends the sample of a batch. Called by the threads of tf.data.

        Args:
            iteration: the number of the iteration that the batch belongs to.
            batch: the number of the batch in its iteration.
            parts: the components to compare.
        """
        group = self._group()
        if group is not None:
            samples = [[is_real(part), row_numbers(part).tolist(), cells(part).tolist()] for part in parts]
            group.compare(self._topic, f"{int(iteration)} {int(batch)}", samples)

    def _compare(self, key: str, names: Sequence[str], samples: Sequence[Sequence[Json]]) -> Optional[str]:
        """Compares two workers' samples of a batch, on worker 0. Returns an error if they differ, or None."""
        first, second = ([Sample(bool(real), *rest) for real, *rest in each] for each in samples)
        found = differ(first, second)
        if not found:
            return None
        message = (
            f"{names[0]} and {names[1]} read different data: batch {key.rpartition(' ')[2]} of an iteration over a dataset "
            f"with elements {self._shown} is not the same. {_REMEDY}"
        )
        if self._may_be_augmentation(found):
            if not self._warned:
                _log.warning(
                    "Possible problem: %s. If only random augmentation differs, use the same seed for it on all workers "
                    "to avoid this warning.",
                    message,
                )
            self._warned = True
            return None
        return message

    def _may_be_augmentation(self, found: Sequence[Sample]) -> bool:
        dataset = self._dataset()
        if dataset is None or not all(each.real for each in found):
            return False
        operations = compat.operations_of_functions(dataset)
        if any(_is_random(name) for name in operations):
            return True
        return len(found) == 1 and any("PyFunc" in name for name in operations)


def _assert_equal_rows(element: Structure, shown: str) -> tf.Operation:
    """Returns an operation that fails if the components of a batch have different numbers of rows."""
    rows = tf.stack([_rows_of(part) for part in tf.nest.flatten(element)])
    return tf.debugging.Assert(
        tf.reduce_all(tf.equal(rows, rows[0])),
        [f"{UNEQUAL_ROWS}; the elements {shown} of the dataset have as many rows:", rows],
        summarize=32,
    )


def _rows_of(part: Union[tf.Tensor, tf.RaggedTensor, tf.SparseTensor]) -> tf.Tensor:
    if isinstance(part, tf.RaggedTensor):
        return tf.cast(part.nrows(), tf.int64)
    return part.dense_shape[0] if isinstance(part, tf.SparseTensor) else tf.shape(part, tf.int64)[0]


def is_real(component: np.ndarray) -> bool:
    """Returns True if the numbers of a component are compared within a tolerance."""
    return component.dtype in _REAL_IN_NUMPY


def row_numbers(component: np.ndarray) -> np.ndarray:
    """Returns one number for each row of a batch: a weighted sum [rows] float64, or a hash [rows] int64.

    It uses at most 32 rows, and 1,024 elements of each row, evenly spread.
    """
    table = _some(component, _ELEMENTS)
    if not is_real(component):
        return np.array([_hash(row) for row in table], np.int64)
    values = table.astype(np.float64)
    values = np.where(np.isfinite(values), values, 0.0)
    return (values * (1 + np.cos(np.arange(values.shape[1])))).sum(axis=1)


def cells(component: np.ndarray) -> np.ndarray:
    """Returns some elements of the rows that `row_numbers` uses.

    Returns none for real numbers, strings, and rows of one element.
    """
    table = _some(component, _CELLS)
    of_use = component.dtype.kind in "iu" and not is_real(component) and table.shape[1] > 1
    return table.reshape(-1) if of_use else np.zeros([0], np.int64)


def _some(component: np.ndarray, most: int) -> np.ndarray:
    """Returns at most 32 rows, and at most `elements` elements of each row, evenly spread."""
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
    """Returns the components that differ, if they show that two workers read different rows; otherwise [].

    Real numbers that are equal up to rounding show neither an equal order nor a different one.

    Raises:
        ValueError: the samples have different components.
    """
    if [each.real for each in first] != [each.real for each in second]:
        raise ValueError("the samples of a batch have different components")
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
    """Returns True if rows agree far more often with the same row of the other worker than with the row before."""
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


def _components(element_spec: Structure) -> List[int]:
    """Returns the positions, in a flat element, of the components to compare."""
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
    if operation.startswith("RandomShuffle"):  # an index, of the arrays that Keras shuffles
        return False
    return any(
        word in operation for word in ("Random", "TruncatedNormal", "Multinomial", "Distorted", "RngRead")
    )
