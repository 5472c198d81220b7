"""Decides the batches of a `fit` whose global batch follows the number of workers."""

from __future__ import annotations

from typing import Callable, Optional, Tuple

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.keras.fit_batches import ArrayRows, FitBatches
from tf_strategies.keras.fit_types import Dataset
from tf_strategies.types import Structure

__all__ = ["BATCHES", "batches_for"]

BATCHES = 'batch="per_worker": a batch has %d rows now, in place of %d, and the learning rate is %.4g times the one that is set'

_AutoShardPolicy = tf.data.experimental.AutoShardPolicy
_NEEDS = 'Elastic(batch="per_worker") cuts the data into other batches when the workers change, and'


def batches_for(
    dataset: tf.data.Dataset,
    arrays: Optional[ArrayRows],
    steps_per_epoch: Optional[int],
    *,
    began_with: int,
    workers: int,
    distribute: Callable[[tf.data.Dataset], Dataset],
) -> FitBatches:
    """Returns the batches for a number of workers.

    Args:
        dataset: the dataset, with batches for the first workers.
        arrays: the rows of the arrays from which Keras has made it; None for a dataset of the user.
        steps_per_epoch: the argument of `fit`.
        began_with: the number of the first workers.
        workers: the number of workers.
        distribute: splits a dataset between them.

    Raises:
        ValueError: raised on all workers if the dataset cannot be cut into other batches.
    """
    given = compat.batch_size_before_maps(dataset) if arrays is None else arrays.batch_size
    _require_batches(dataset, given, began_with)
    total = compat.number_of_rows(dataset, given) if arrays is None else arrays.total
    if arrays is None and int(compat.compute_batch_size(dataset)) < 0:
        dataset = _checked(dataset, given, only_last=total is not None)
    if steps_per_epoch is not None and (arrays is not None or int(dataset.cardinality()) >= 0):
        raise ValueError(
            f"{_NEEDS} the steps of an epoch change with them. With steps_per_epoch, the data must not end: give it a "
            "dataset on which `repeat` is called, or leave steps_per_epoch out"
        )
    return FitBatches(
        dataset,
        given=given,
        rows=given // began_with * workers,
        total=total if steps_per_epoch is None else None,
        steps_per_epoch=steps_per_epoch,
        per_epoch=None if arrays is None else arrays.per_epoch,
        distribute=distribute,
    )


def _require_batches(dataset: tf.data.Dataset, given: int, began_with: int) -> None:
    specs = tf.nest.flatten(dataset.element_spec)
    if given <= 0:
        raise ValueError(
            f"{_NEEDS} does not know the size of these: call `batch` last, or only `map` and `prefetch` "
            "after it"
        )
    if given % began_with:
        raise ValueError(
            f"{_NEEDS} each worker has the same number of rows. Batches of {given} rows cannot be divided between the "
            f"{began_with} workers with which the group began; use a multiple of {began_with}"
        )
    if not all(isinstance(each, tf.TensorSpec) and each.shape[1:].is_fully_defined() for each in specs):
        raise ValueError(
            f"{_NEEDS} all rows must have one shape, which is known; those of this dataset are {dataset.element_spec}. Pad them "
            "to one length, and set it with tf.ensure_shape"
        )
    policy = _AutoShardPolicy(dataset.options().experimental_distribute.auto_shard_policy)
    if policy not in (_AutoShardPolicy.AUTO, _AutoShardPolicy.DATA):
        raise ValueError(
            f"{_NEEDS} reads the whole dataset on every worker for this, but the dataset asks for AutoShardPolicy.{policy.name}; "
            "leave the policy out"
        )


def _checked(dataset: tf.data.Dataset, given: int, *, only_last: bool) -> tf.data.Dataset:
    """Requires that batches still have the rows with which they were made.

    Args:
        dataset: the batches.
        given: the rows of a batch.
        only_last: whether only the last batch may have fewer.
    """

    def check(before: tf.Tensor, *batch: Structure) -> Tuple[tf.Tensor, Structure]:
        rows = tf.shape(tf.nest.flatten(batch)[0], tf.int64)[0]
        right = (rows <= given) & ((before == given) | (not only_last))
        message = (
            f"{_NEEDS} needs the number of their rows, but an operation after `batch` changes it: batches were made with {given} "
            "rows; call `batch` after this operation"
        )
        with tf.control_dependencies([tf.debugging.Assert(right, [message, before, rows])]):
            return tf.identity(rows), batch if len(batch) > 1 else batch[0]

    return dataset.scan(tf.constant(given, tf.int64), check)
