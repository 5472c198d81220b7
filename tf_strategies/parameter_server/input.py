"""Splits datasets between workers."""

from __future__ import annotations

import contextlib
from typing import Iterator, NamedTuple, Optional, Union

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.keras.refusals import refuse_few_batches
from tf_strategies.native.release import with_iterators_released
from tf_strategies.types import Structure

__all__ = ["DatasetDistributor", "ShareOfBatch"]

_DEALS_BATCHES = (tf.data.experimental.AutoShardPolicy.AUTO, tf.data.experimental.AutoShardPolicy.DATA)
"""The others split files, follow a hint, or split nothing."""


class ShareOfBatch(NamedTuple):
    """A worker's rows of a batch, as `fit` reads them.

    Attributes:
        batch: the rows.
        total: the number of rows of all workers, [] int64.
        is_copied: whether all workers have the same rows, [] bool.
    """

    batch: Structure
    total: tf.Tensor
    is_copied: tf.Tensor


class DatasetDistributor:
    """Splits datasets between workers by their AutoShardPolicy.

    In the context `whole`, each worker gets all data.

    Args:
        rank, size: this worker's number, and the number of workers.
        splits_batches: whether a worker takes its share of every batch (synchronous), or whole batches in
            turn.
    """

    def __init__(self, rank: int, size: int, *, splits_batches: bool) -> None:
        self._rank = rank
        self._size = size
        self._splits_batches = splits_batches
        self._whole = False
        self._fitting = False

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Opens a context in which datasets are not split: every worker sees all of the data, in the batches given."""
        with self._restored():
            self._whole = True
            yield

    @contextlib.contextmanager
    def fitting(self) -> Iterator[None]:
        """Opens a context in which the first dataset that is distributed is the one to train on.

        That dataset is split. Datasets for validation are not.
        """
        before, self._fitting = self._fitting, True
        try:
            with self._restored():
                yield
        finally:
            self._fitting = before

    @property
    def is_fitting(self) -> bool:
        """Whether a `fit` runs."""
        return self._fitting

    @property
    def context(self) -> tf.distribute.InputContext:
        """The InputContext that functions that make datasets receive."""
        if self._whole:
            return tf.distribute.InputContext()
        return tf.distribute.InputContext(
            num_input_pipelines=self._size,
            input_pipeline_id=self._rank,
            num_replicas_in_sync=self._size if self._splits_batches else 1,
        )

    def distribute(
        self, dataset: tf.data.Dataset, options: Optional[tf.distribute.InputOptions]
    ) -> tf.data.Dataset:
        """Returns what `Strategy.experimental_distribute_dataset` returns: this worker's share, as a plain dataset."""
        _refuse_per_replica(options)
        dataset = _on_present_device(dataset)
        share = self._share(dataset)
        if share is dataset:
            share = dataset.with_options(
                tf.data.Options()
            )  # a new object, so that the user's object does not change
        return with_iterators_released(share)

    def _share(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        context, counts = self.context, self._fitting and not self._whole
        self._whole = self._whole or self._fitting
        if context.num_input_pipelines == 1:
            return dataset
        if context.num_replicas_in_sync > 1:
            return _share_of_each_batch(dataset, self._rank, self._size, counts=counts)
        if counts and dataset.options().experimental_distribute.auto_shard_policy in _DEALS_BATCHES:
            refuse_few_batches(int(dataset.cardinality()), self._size)
        return compat.auto_sharded(dataset, self._size, self._rank)

    @contextlib.contextmanager
    def _restored(self) -> Iterator[None]:
        before = self._whole
        try:
            yield
        finally:
            self._whole = before


def _on_present_device(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns a dataset to which datasets can be added that are made now.

    TensorFlow gives devices other names when it connects to a cluster. A dataset from before that has a device of the former
    name, and TensorFlow makes `map`, `shard` and so on at the device of the dataset before them.
    """
    if not tf.executing_eagerly():
        return dataset
    before = tf.data.experimental.to_variant(dataset)
    with tf.device(None), tf.device("CPU:0"):
        now = tf.identity(before)
    if now.device == before.device:
        return dataset
    return tf.data.experimental.from_variant(now, dataset.element_spec).with_options(dataset.options())


def _share_of_each_batch(dataset: tf.data.Dataset, rank: int, size: int, *, counts: bool) -> tf.data.Dataset:
    """Returns consecutive rows of every batch.

    If a batch has fewer rows than there are workers, each worker of a `fit` gets all of them, so that the workers stay in step.
    Elsewhere some workers get no rows and skip it.

    Args:
        dataset: the dataset.
        rank, size: this worker's number, and the number of workers.
        counts: whether each element is a `ShareOfBatch`.
    """
    policy = tf.data.experimental.AutoShardPolicy
    if dataset.options().experimental_distribute.auto_shard_policy == policy.OFF:
        return dataset

    def rows(*batch: Structure) -> Structure:
        total = tf.shape(tf.nest.flatten(batch)[0], out_type=tf.int64)[0]
        begin, end = total * rank // size, total * (rank + 1) // size
        is_small = total < size
        if counts:
            begin, end = tf.where(is_small, tf.zeros_like(begin), begin), tf.where(is_small, total, end)
            total = tf.where(is_small, total * size, total)
        share = tf.nest.map_structure(lambda part: _rows_between(part, begin, end), batch)
        share = share if len(batch) > 1 else share[0]
        return ShareOfBatch(share, total, is_small) if counts else share

    def has_rows(*batch: Structure) -> tf.Tensor:
        return tf.shape(tf.nest.flatten(batch)[0])[0] > 0

    return dataset.map(rows) if counts else dataset.map(rows).filter(has_rows)


def _rows_between(
    part: Union[tf.Tensor, tf.RaggedTensor, tf.SparseTensor], begin: tf.Tensor, end: tf.Tensor
) -> Union[tf.Tensor, tf.RaggedTensor, tf.SparseTensor]:
    """Returns the rows of a component of a batch from `begin` to the one before `end`, [] int64."""
    if not isinstance(part, tf.SparseTensor):
        return part[begin:end]
    row_shape = part.dense_shape[1:]
    first = tf.concat([[begin], tf.zeros_like(row_shape)], 0)
    rows = tf.sparse.slice(part, first, tf.concat([[end - begin], row_shape], 0))
    if part.shape.rank is not None:
        rows.set_shape([None, *part.shape[1:]])
    return rows


def _refuse_per_replica(options: Optional[tf.distribute.InputOptions]) -> None:
    mode = tf.distribute.InputReplicationMode.PER_REPLICA
    if options and options.experimental_replication_mode == mode:
        raise NotImplementedError(
            "InputReplicationMode.PER_REPLICA is not supported; a worker has one replica: use the default PER_WORKER"
        )
