"""Splits datasets between workers and replicas."""

from __future__ import annotations

import sys

import tensorflow as tf
from absl import logging

from tf_strategies._tf import compat
from tf_strategies.collective.exchange.agreement import exchange_texts, require_agreement
from tf_strategies.collective.input.autoshard import Sharding, agree_on_sharding, with_policy
from tf_strategies.collective.input.batch_check import UNEQUAL_ROWS, BatchCheck
from tf_strategies.collective.worker_group import WorkerGroup
from tf_strategies.errors import BootstrapError

__all__ = ["DatasetDistributor"]


class DatasetDistributor:
    """Splits datasets between workers and replicas.

    Each global batch is split between all replicas, and the elements are sharded by the dataset's
    AutoShardPolicy. The chief logs the choice. All workers take the same number of steps. Before each step
    they count the workers that still have data. A worker without data continues with empty batches, which
    have no weight in losses, gradients and metrics, until all workers are done.

    Args:
        group: the workers.
        local_replicas: the number of replicas on each worker.
        counts_always: whether workers also count those with data if their data are known to have the same length.
    """

    def __init__(self, group: WorkerGroup, local_replicas: int, *, counts_always: bool = True) -> None:
        if group.may_have_others:
            from tf_strategies.native.release import keep_datasets_of_iterators

            keep_datasets_of_iterators()
        self._group = group
        self._local_replicas = local_replicas
        self._counts_always = counts_always
        self._told: set[str] = set()

    @property
    def _context(self) -> tf.distribute.InputContext:
        return tf.distribute.InputContext(
            num_input_pipelines=self._group.size,
            input_pipeline_id=self._group.rank,
            num_replicas_in_sync=self._group.size * self._local_replicas,
        )

    def distribute(self, dataset: tf.data.Dataset, strategy, input_workers, options):
        """Returns what `Strategy.experimental_distribute_dataset` returns.

        Raises:
            ValueError: raised on all workers if their datasets differ in structure, dtypes, shapes or batch
                size; if datasets that must be equal differ in length, files or order; or if the
                AutoShardPolicy cannot be applied.
        """
        _refuse_per_replica(options)
        self._refuse_scalars(dataset)
        self._refuse_unequal_rows(dataset)
        self._check(dataset)
        one_batch_a_step, watch = True, None
        if self._group.size > 1 and tf.executing_eagerly():
            is_one_batch = _is_one_batch(dataset)
            sharding = agree_on_sharding(
                self._group, dataset, is_elastic=getattr(strategy, "is_elastic", False)
            )
            dataset = with_policy(dataset, sharding.policy)
            one_batch_a_step = sharding.policy == tf.data.experimental.AutoShardPolicy.DATA
            self._tell(sharding)
            if one_batch_a_step and not is_one_batch:
                watch = BatchCheck(self._group, dataset).watch
        distributed = compat.distribute_dataset(
            dataset,
            input_workers,
            strategy,
            watch=watch,
            tells_rows=self._group.generation is None,
            num_replicas_in_sync=self._context.num_replicas_in_sync,
            input_context=self._context,
            options=options,
        )
        steps = int(distributed.cardinality) if one_batch_a_step else self._own_steps(distributed)
        return self._with_equal_length(distributed, steps)

    def _refuse_scalars(self, dataset: tf.data.Dataset) -> None:
        """Raises ValueError on all workers if elements have a scalar, which cannot be split between replicas."""
        flat = tf.nest.flatten(dataset.element_spec)
        if self._context.num_replicas_in_sync > 1 and any(
            isinstance(spec, tf.TensorSpec) and spec.shape.rank == 0 for spec in flat
        ):
            raise ValueError(
                "the dataset to distribute cannot be split between "
                f"{self._context.num_replicas_in_sync} replicas: its elements {dataset.element_spec} have a component that is a "
                "scalar; call `batch` on the dataset, or make each worker's batches with distribute_datasets_from_function, "
                "which splits none"
            )

    def _refuse_unequal_rows(self, dataset: tf.data.Dataset) -> None:
        """Raises ValueError on all workers if components are known to have different numbers of rows."""
        shapes = [spec.shape for spec in tf.nest.flatten(dataset.element_spec) if hasattr(spec, "shape")]
        rows = {shape[0] for shape in shapes if shape.rank} - {None}
        if self._context.num_replicas_in_sync > 1 and len(rows) > 1:
            raise ValueError(f"{UNEQUAL_ROWS}; the elements of the dataset are {dataset.element_spec}")

    def _tell(self, sharding: Sharding) -> None:
        """Logs on the chief how a dataset is split.

        Each different line is logged once, at a level that is visible by default.
        """
        line = str(sharding)
        if self._group.rank != 0 or line in self._told:
            return
        self._told.add(line)
        if sharding.needs_attention:
            logging.warning("%s", line)
        elif logging.get_verbosity() == logging.WARNING:  # the default of absl, which hides INFO
            print(f"tf_strategies: {line}", file=sys.stderr, flush=True)
        else:
            logging.info("%s", line)

    def distribute_from_function(self, dataset_fn, strategy, input_workers, options):
        """Returns the result of `Strategy.distribute_datasets_from_function`.

        `dataset_fn` makes batches for one replica.

        Raises:
            ValueError: on all workers, when their datasets differ in structure, dtypes, shapes or batch size.
        """
        _refuse_per_replica(options)

        def checked(context: tf.distribute.InputContext) -> tf.data.Dataset:
            dataset = dataset_fn(context)
            self._check(dataset)
            return dataset

        distributed = compat.distribute_datasets_from_function(
            checked, input_workers, [self._context], strategy, options
        )
        return self._with_equal_length(distributed, self._own_steps(distributed))

    def of_this_worker(self, input_fn):
        """Calls Estimator's `input_fn` with the input context of this worker, instead of TensorFlow's own.

        Raises:
            ValueError: on all workers, when their datasets differ in structure, dtypes or shapes.
        """

        def checked(_: tf.distribute.InputContext):
            dataset = input_fn(self._context)
            if isinstance(dataset, tf.data.Dataset):
                self._check(dataset)
            return dataset

        return checked

    def _own_steps(self, distributed) -> int:
        """Returns the number of steps for this worker's part of the data.

        Negative numbers have the same meaning as in tf.data.
        """
        batches = compat.own_cardinality(distributed)
        return batches if batches < 0 else -(-batches // self._local_replicas)

    def _with_equal_length(self, distributed, steps: int):
        """Makes all workers take the same number of steps.

        Keras asks the dataset for it, so the dataset reports the maximum over workers.
        """
        lengths = [steps]
        if self._group.size > 1:
            texts = exchange_texts(self._group, str(steps), name="length of the dataset to distribute")
            lengths = [int(text) for text in texts]
        uneven = len(set(lengths)) > 1
        unknown = uneven and min(lengths) < 0
        compat.set_cardinality(distributed, tf.data.UNKNOWN_CARDINALITY if unknown else max(lengths))
        if uneven:
            compat.ask_who_has_data(distributed, True)
        elif not self._counts_always and steps != tf.data.UNKNOWN_CARDINALITY:
            compat.ask_who_has_data(distributed, False)
        self._require_for_each_iterator(distributed)
        if self._group.size == 1:
            return distributed
        from tf_strategies.native.release import with_iterators_released

        # If one worker waited for its iterator to end, all other workers would wait, too.
        return with_iterators_released(distributed)

    def _require_for_each_iterator(self, distributed) -> None:
        """Lets iterators be made for this group alone: those of a later group would read the shares of this one."""
        made_for = self._group.generation
        if made_for is None:
            return

        def require(_) -> None:
            if self._group.generation != made_for:
                raise BootstrapError(
                    "a distributed dataset was made before the group changed, so it has the shares of the last group; make it in "
                    "the function that ElasticState.run calls"
                )

        compat.show_iterators(distributed, require)

    def _check(self, dataset: tf.data.Dataset) -> None:
        if self._group.size > 1:
            require_agreement(self._group, "the dataset to distribute", _describe(dataset))


def _describe(dataset: tf.data.Dataset) -> str:
    batch = tf.get_static_value(compat.compute_batch_size(dataset))
    size = "of unknown batch size" if batch is None or batch < 0 else f"with batches of {batch}"
    return f"elements {dataset.element_spec} {size}"


def _is_one_batch(dataset: tf.data.Dataset) -> bool:
    """Returns True if the dataset has a single batch, as Keras 2 makes for each `train_on_batch`.

    It then has no order to compare.
    """
    return compat.dataset_sources(dataset) == [dataset] and int(dataset.cardinality()) == 1


def _refuse_per_replica(options) -> None:
    mode = tf.distribute.InputReplicationMode.PER_REPLICA
    if options and options.experimental_replication_mode == mode:
        raise NotImplementedError(
            "InputReplicationMode.PER_REPLICA is not supported; use the default PER_WORKER, which feeds all replicas of a worker "
            "from one dataset"
        )
