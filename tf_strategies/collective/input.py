"""Datasets for the replicas of one worker among many."""

from __future__ import annotations

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.collective.agreement import exchange_texts, require_agreement

__all__ = ["DatasetDistributor"]


class DatasetDistributor:
    """Splits datasets between workers and replicas.

    A global batch is split between all replicas, and the elements are sharded by the dataset's AutoShardPolicy.
    Workers take the same number of steps: before each, they add up who still has data. One that ran out goes on
    with empty batches, whose loss, gradients and metrics weigh nothing, until the last is done.

    Args:
        group: the workers.
        local_replicas: the number of replicas on each of them.
    """

    def __init__(self, group, local_replicas: int) -> None:
        self._group = group
        self._context = tf.distribute.InputContext(
            num_input_pipelines=group.size,
            input_pipeline_id=group.rank,
            num_replicas_in_sync=group.size * local_replicas,
        )

    def distribute(self, dataset: tf.data.Dataset, strategy, input_workers, options):
        """What `Strategy.experimental_distribute_dataset` returns.

        Raises:
            ValueError: on all workers, when their datasets differ in structure, dtypes, shapes or batch size.
        """
        _refuse_per_replica(options)
        self._check(dataset)
        distributed = compat.distribute_dataset(
            dataset,
            input_workers,
            strategy,
            num_replicas_in_sync=self._context.num_replicas_in_sync,
            input_context=self._context,
            options=options,
        )
        return self._with_equal_length(distributed)

    def distribute_from_function(self, dataset_fn, strategy, input_workers, options):
        """What `Strategy.distribute_datasets_from_function` returns; `dataset_fn` batches for one replica.

        Raises:
            ValueError: as `distribute`.
        """
        _refuse_per_replica(options)

        def checked(context: tf.distribute.InputContext) -> tf.data.Dataset:
            dataset = dataset_fn(context)
            self._check(dataset)
            return dataset

        distributed = compat.distribute_datasets_from_function(
            checked, input_workers, [self._context], strategy, options
        )
        return self._with_equal_length(distributed)

    def _with_equal_length(self, distributed):
        """Makes the workers count alike: Keras takes as many steps as the dataset says, so it says the longest worker's."""
        if self._group.size == 1:
            return distributed
        mine = str(int(distributed.cardinality))
        lengths = [
            int(text)
            for text in exchange_texts(self._group, mine, name="length of the dataset to distribute")
        ]
        if len(set(lengths)) > 1:
            unknown = min(lengths) < 0
            compat.set_cardinality(distributed, tf.data.UNKNOWN_CARDINALITY if unknown else max(lengths))
        return distributed

    def _check(self, dataset: tf.data.Dataset) -> None:
        if self._group.size > 1:
            require_agreement(self._group, "the dataset to distribute", _describe(dataset))


def _describe(dataset: tf.data.Dataset) -> str:
    batch = tf.get_static_value(compat.compute_batch_size(dataset))
    size = "of unknown batch size" if batch is None or batch < 0 else f"with batches of {batch}"
    return f"elements {dataset.element_spec} {size}"


def _refuse_per_replica(options) -> None:
    mode = tf.distribute.InputReplicationMode.PER_REPLICA
    if options and options.experimental_replication_mode == mode:
        raise NotImplementedError(
            "InputReplicationMode.PER_REPLICA is not supported; use the default PER_WORKER, which feeds all replicas of a worker "
            "from one dataset"
        )
