"""Inspects pipelines of tf.data, and distributes them."""

from __future__ import annotations

import functools

import tensorflow as tf

from tf_strategies._tf.private_names import private

__all__ = [
    "OwnDataset",
    "ask_who_has_data",
    "auto_sharded",
    "batch_size_before_maps",
    "compute_batch_size",
    "dataset_sources",
    "distribute_dataset",
    "distribute_datasets_from_function",
    "element_of",
    "flat_specs",
    "iterator_handles",
    "number_of_rows",
    "operations_of_functions",
    "optional_batches",
    "own_cardinality",
    "set_cardinality",
    "show_iterators",
    "shuffle_seeds",
    "shuffles_and_shards",
    "watch_device_iterators",
]

distribute_datasets_from_function = private.get_distributed_datasets_from_function


def own_cardinality(distributed):
    """Returns the number of batches in this worker's part of a distributed dataset, for all its replicas together.

    Negative numbers have the same meaning as in tf.data.

    The distributed dataset itself reports the length of the dataset before it was split.
    """
    if not tf.executing_eagerly():
        return tf.data.UNKNOWN_CARDINALITY
    parts = getattr(distributed, "_cloned_datasets", None) or distributed._datasets
    return int(parts[0].cardinality())


def set_cardinality(distributed, cardinality):
    """Sets the number of steps that a distributed dataset reports. No public argument sets it."""
    distributed._cardinality = cardinality


def compute_batch_size(dataset):
    """Returns the batch size that a dataset was built with.

    Returns -1 if the batch size is unknown, or if a component is a scalar. No public function returns it.
    """
    specs = tf.nest.flatten(dataset.element_spec)
    if any(isinstance(spec, tf.TensorSpec) and spec.shape.rank == 0 for spec in specs):
        return tf.constant(-1, tf.int64)
    return private.compute_batch_size(dataset)


class _SplitDataset(private.DistributedDataset):
    """A DistributedDataset that watches its batches before it splits them, and may not tell how many rows a part has.

    TensorFlow derives the batch size from the dataset before it splits the batches. It cannot derive it from
    a watched dataset.
    """

    def __init__(self, watch, tells_rows, *args, **kwargs):
        self._watch, self._tells_rows, self._unwatched = watch, tells_rows, None
        super().__init__(*args, **kwargs)

    def _create_cloned_datasets_from_dataset(self, dataset, *args, **kwargs):
        self._unwatched = dataset
        super()._create_cloned_datasets_from_dataset(self._watch(dataset), *args, **kwargs)
        if not self._tells_rows and int(dataset.cardinality()) != tf.data.INFINITE_CARDINALITY:
            self._cloned_datasets = [_DatasetOfAnyRows(each) for each in self._cloned_datasets]

    def _make_rebatch_fn(self, dataset, *args, **kwargs):
        return super()._make_rebatch_fn(self._unwatched, *args, **kwargs)

    def count_iterator(self):
        """Makes an iterator that nobody reads, which a dataset that shuffles counts. One for devices would take longer."""
        iter(self._cloned_datasets[0])


class _DatasetOfAnyRows(private.UnaryUnchangedStructureDataset):
    """A dataset itself, but functions that are traced with it suit any number of rows."""

    def __init__(self, dataset):
        super().__init__(dataset, tf.data.experimental.to_variant(dataset))

    @property
    def element_spec(self):
        return tf.nest.map_structure(_of_any_rows, self._input_dataset.element_spec)


def _of_any_rows(spec):
    if type(spec) is not tf.TensorSpec or not spec.shape.rank:
        return spec
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype, spec.name)


class OwnDataset(private.UnaryUnchangedStructureDataset):
    """A dataset made by an operation of our own, with elements like those of its input.

    Args:
        input_dataset: the dataset that it reads. It is kept alive here, because TensorFlow deletes the
            functions of a dataset that is garbage.
        variant: [] variant, the output of the operation.
        keep: an object that must live as long as this dataset.
    """

    def __init__(self, input_dataset, variant, keep):
        self._keep = keep
        super().__init__(input_dataset, variant)


def distribute_dataset(dataset, input_workers, strategy, *, watch=None, tells_rows=True, **kwargs):
    """Rebatches and shards a dataset as tf.distribute does. A worker without more data gets empty batches.

    The public function of the strategy assumes one machine. `watch` takes a dataset and returns one with the
    same elements. It is applied after the batch size has been computed. Without `tells_rows`, functions that are traced with the
    iterators suit any number of rows, unless the dataset is infinite.
    """
    if watch is None and (tells_rows or not tf.executing_eagerly()):
        return private.get_distributed_dataset(dataset, input_workers, strategy, **kwargs)
    return _SplitDataset(
        watch or (lambda given: given), tells_rows, input_workers, strategy, dataset, **kwargs
    )


def flat_specs(element_spec):
    """Returns the tf.TensorSpec of each flat component of an element."""
    return private.get_flat_tensor_specs(element_spec)


def element_of(element_spec, components):
    """Builds an element of a dataset from its flat components."""
    return private.from_compatible_tensor_list(element_spec, list(components))


def operations_of_functions(dataset):
    """Returns the types of the operations in the functions of a pipeline (`map`, `filter`, …), at any depth.

    No public function returns them.
    """
    found = set()
    for function in dataset._functions():
        definition = function.function.graph.as_graph_def(add_shapes=False)
        found.update(node.op for node in definition.node)
        found.update(node.op for inner in definition.library.function for node in inner.node_def)
    return found.union(*(operations_of_functions(part) for part in dataset._inputs()))


def auto_sharded(dataset, workers, worker):
    """Returns one worker's share of a dataset by its AutoShardPolicy.

    The public API does this only inside a DistributedDataset.
    """
    return private._AutoShardDataset(dataset, workers, worker)


def ask_who_has_data(distributed, ask):
    """Lets the iterators of a distributed dataset ask all workers, before each batch, which of them still have data, or not."""
    distributed._enable_get_next_as_optional = ask


@functools.cache
def watch_device_iterators(watch):
    """Calls `watch(handle, dataset)` for each iterator of several devices that is made outside of functions.

    The dataset is a variant tensor. Nothing else gives it: it is made together with the iterator.
    """
    operations = private.gen_dataset_ops
    initialize = operations.multi_device_iterator_init

    @functools.wraps(initialize)
    def watched(dataset, multi_device_iterator, *args, **kwargs):
        incarnation = initialize(dataset, multi_device_iterator, *args, **kwargs)
        if tf.executing_eagerly():
            watch(multi_device_iterator, dataset)
        return incarnation

    operations.multi_device_iterator_init = watched


def show_iterators(dataset, show):
    """Calls `show(iterator)` for each iterator that is made from this dataset object outside of functions.

    Returns the dataset.

    Datasets have no public hook for this, and iter() uses only the class of an object.
    """
    kind = type(dataset)

    def shown(self):
        iterator = kind.__iter__(self)
        if tf.executing_eagerly():
            show(iterator)
        return iterator

    dataset.__class__ = type(kind.__name__, (kind,), {"__iter__": shown, "__module__": kind.__module__})
    return dataset


def iterator_handles(iterator):
    """Returns the handles of an iterator's resources, but for those that `watch_device_iterators` shows.

    No public attribute has them.
    """
    found = []
    for part in getattr(iterator, "_iterators", [iterator]):
        inner = getattr(part, "_iterator", part)
        found += [each._iterator_resource for each in getattr(inner, "_device_iterators", ())]
        found.append(getattr(inner, "_iterator_resource", None))
    return [handle for handle in found if handle is not None]


def optional_batches(iterator):
    """Returns the next batch of each local replica as a tf.experimental.Optional.

    The iterator is a distributed iterator over an input function.

    The iterator itself returns a batch or ends, and does not tell the other workers that it has ended.
    """
    return iterator._iterators[0].get_next_as_optional_list()


def dataset_sources(dataset):
    """Returns the source datasets of a pipeline. The inputs of a dataset are not public."""
    inputs = dataset._inputs()
    return [source for part in inputs for source in dataset_sources(part)] if inputs else [dataset]


def batch_size_before_maps(dataset):
    """Returns what `compute_batch_size` returns, also if the batches are changed after they were made, as by `map` and `filter`.

    These operations may have changed the number of rows, too.
    """
    size, inputs = int(compute_batch_size(dataset)), dataset._inputs()
    if size >= 0 or len(inputs) != 1:
        return size
    keeps_number = int(inputs[0].cardinality()) == int(dataset.cardinality())
    filters = (
        int(dataset.cardinality()) == tf.data.UNKNOWN_CARDINALITY
        and inputs[0].element_spec == dataset.element_spec
    )
    return batch_size_before_maps(inputs[0]) if keeps_number or filters else size


def number_of_rows(dataset, batch_size):
    """Returns the number of rows of a dataset of batches, or None if it is unknown.

    It is known if an operation like `batch`, whose input has a known length, is followed by others that keep the number and the
    order of the batches, such as `map` and `prefetch`. The inputs of a dataset are not public.
    """
    batches = int(dataset.cardinality())
    specs = tf.nest.flatten(dataset.element_spec)
    while batches >= 0 and not isinstance(dataset, private._ShuffleDataset):
        inputs = dataset._inputs()
        if len(inputs) != 1:
            return None
        (before,) = inputs
        rows, specs_before = int(before.cardinality()), tf.nest.flatten(before.element_spec)
        if _are_rows_of(specs_before, specs):
            full = batches * batch_size
            return min(rows, full) if full - batch_size < rows < full + batch_size else None
        if rows != batches:
            return None
        dataset, specs = before, specs_before
    return None


def _are_rows_of(rows, batches):
    """Returns True if the specs of batches are those of rows with a dimension before the others."""
    pairs = list(zip(rows, batches))
    return len(rows) == len(batches) and all(
        isinstance(row, tf.TensorSpec)
        and isinstance(batch, tf.TensorSpec)
        and batch.shape.rank == (row.shape.rank or 0) + 1
        and row.dtype == batch.dtype
        for row, batch in pairs
    )


def shuffle_seeds(dataset):
    """Returns the (graph, operation) seeds of each `shuffle` in a dataset; None for a `shuffle` without a seed.

    No public function returns them.
    """
    found = []
    if isinstance(dataset, private._ShuffleDataset):
        seeds = int(tf.get_static_value(dataset._seed)), int(tf.get_static_value(dataset._seed2))
        found.append(seeds if any(seeds) else None)
    for part in dataset._inputs():
        found.extend(shuffle_seeds(part))
    return found


def shuffles_and_shards(dataset):
    """Returns "shuffle", "unseeded shuffle" or "shard" for each of these in a dataset, the last of the pipeline first.

    The inputs of a dataset are not public.
    """
    found = []
    if isinstance(dataset, private._ShuffleDataset):
        seeds = tf.get_static_value(dataset._seed), tf.get_static_value(dataset._seed2)
        found.append("shuffle" if any(seeds) else "unseeded shuffle")
    if isinstance(dataset, private._ShardDataset):
        found.append("shard")
    for part in dataset._inputs():
        found.extend(shuffles_and_shards(part))
    return found


def rewinding(dataset):
    """Returns a function after which new iterators of the dataset read in the order of those that are made from now on.

    An iterator of a dataset that shuffles anew each time takes its seeds from a generator of the dataset. Restoring the saved
    state of an iterator sets the generator back to the time of saving. No public function does this without a file.

    Raises:
        tf.errors.OpError: the state cannot be saved.
    """
    ignore_external_state = 1  # of tf.data.experimental.ExternalStatePolicy
    state = tf.raw_ops.SerializeIterator(
        resource_handle=iter(dataset)._iterator_resource, external_state_policy=ignore_external_state
    )

    def rewind():
        iterator = iter(dataset)
        tf.raw_ops.DeserializeIterator(resource_handle=iterator._iterator_resource, serialized=state)

    return rewind
