"""Inspects pipelines of tf.data, and distributes them."""

from __future__ import annotations

import tensorflow as tf

from tf_strategies._tf.private_names import private

__all__ = [
    "OwnDataset",
    "ask_who_has_data",
    "auto_sharded",
    "compute_batch_size",
    "dataset_sources",
    "distribute_dataset",
    "distribute_datasets_from_function",
    "element_of",
    "flat_specs",
    "iterator_handles",
    "operations_of_functions",
    "optional_batches",
    "own_cardinality",
    "set_cardinality",
    "show_iterators",
    "shuffle_seeds",
]

distribute_datasets_from_function = private.get_distributed_datasets_from_function


def own_cardinality(distributed):
    """Returns the number of batches that this worker's part of a distributed dataset has over all its replicas.

    Negative numbers mean what they mean in tf.data.

    A distributed dataset itself says the length of what it was made of, before it was split.
    """
    if not tf.executing_eagerly():
        return tf.data.UNKNOWN_CARDINALITY
    parts = getattr(distributed, "_cloned_datasets", None) or distributed._datasets
    return int(parts[0].cardinality())


def set_cardinality(distributed, cardinality):
    """Sets the number of steps a distributed dataset says it has; it cannot be given."""
    distributed._cardinality = cardinality


def compute_batch_size(dataset):
    """Returns the batch size that a dataset was built with.

    -1 if it is unknown, or if a component is a scalar. No public function returns it.
    """
    specs = tf.nest.flatten(dataset.element_spec)
    if any(isinstance(spec, tf.TensorSpec) and spec.shape.rank == 0 for spec in specs):
        return tf.constant(-1, tf.int64)
    return private.compute_batch_size(dataset)


class _WatchedDataset(private.DistributedDataset):
    """A DistributedDataset whose batches are watched before they are split.

    TensorFlow splits a batch by sizes that it finds out from the dataset before; it cannot find them out of a watched one.
    """

    def __init__(self, watch, *args, **kwargs):
        self._watch, self._unwatched = watch, None
        super().__init__(*args, **kwargs)

    def _create_cloned_datasets_from_dataset(self, dataset, *args, **kwargs):
        self._unwatched = dataset
        super()._create_cloned_datasets_from_dataset(self._watch(dataset), *args, **kwargs)

    def _make_rebatch_fn(self, dataset, *args, **kwargs):
        return super()._make_rebatch_fn(self._unwatched, *args, **kwargs)


class OwnDataset(private.UnaryUnchangedStructureDataset):
    """A dataset made by an operation of our own, with elements like those of its input.

    Args:
        input_dataset: what it reads. It is held, because TensorFlow forgets functions of a dataset that nobody holds.
        variant: [] variant, the output of the operation.
        keep: is held for the same reason.
    """

    def __init__(self, input_dataset, variant, keep):
        self._keep = keep
        super().__init__(input_dataset, variant)


def distribute_dataset(dataset, input_workers, strategy, *, watch=None, **kwargs):
    """Rebatches and shards a dataset as all of tf.distribute does, with empty batches for a worker that ran out.

    The public way in is the strategy itself, with the input context of one machine. `watch` is a function of the dataset that
    returns one with the same elements; it is applied after the batch size was found out.
    """
    if watch is None:
        return private.get_distributed_dataset(dataset, input_workers, strategy, **kwargs)
    return _WatchedDataset(watch, input_workers, strategy, dataset, **kwargs)


def flat_specs(element_spec):
    """Returns the tf.TensorSpec of each component in which a dataset hands an element to an operation."""
    return private.get_flat_tensor_specs(element_spec)


def element_of(element_spec, components):
    """Returns the element of a dataset that has these components."""
    return private.from_compatible_tensor_list(element_spec, list(components))


def operations_of_functions(dataset):
    """Returns the kinds of operations in the functions of a pipeline (`map`, `filter`, …), at any depth.

    No public function returns them.
    """
    found = set()
    for function in dataset._functions():
        definition = function.function.graph.as_graph_def(add_shapes=False)
        found.update(node.op for node in definition.node)
        found.update(node.op for inner in definition.library.function for node in inner.node_def)
    return found.union(*(operations_of_functions(part) for part in dataset._inputs()))


def auto_sharded(dataset, workers, worker):
    """Returns one worker's share of a dataset by its AutoShardPolicy. Public is only the way through a DistributedDataset."""
    return private._AutoShardDataset(dataset, workers, worker)


def ask_who_has_data(distributed):
    """Has the iterators of a distributed dataset ask all workers who still has data; one worker's dataset cannot tell."""
    distributed._enable_get_next_as_optional = True


def show_iterators(dataset, show):
    """Calls `show(iterator)` with each iterator that is made of this dataset object outside of functions; returns the dataset.

    A dataset, distributed or not, has no public hook for that, and iter() looks at its class alone.
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
    """Returns the handles of an iterator's resources, those that use others first; no public attribute has them."""
    found = []
    for part in getattr(iterator, "_iterators", [iterator]):
        inner = getattr(part, "_iterator", part)
        found += [each._iterator_resource for each in getattr(inner, "_device_iterators", ())]
        found.append(getattr(inner, "_multi_device_iterator_resource", None))
        found.append(getattr(inner, "_iterator_resource", None))
    return [handle for handle in found if handle is not None]


def optional_batches(iterator):
    """Returns the next batch of each local replica as a tf.experimental.Optional.

    The iterator is a distributed iterator over an input function.

    The iterator itself gives batches, or an end that no other worker hears of.
    """
    return iterator._iterators[0].get_next_as_optional_list()


def dataset_sources(dataset):
    """Returns the datasets at the start of a pipeline. A dataset tells its inputs only to tf.data itself."""
    inputs = dataset._inputs()
    return [source for part in inputs for source in dataset_sources(part)] if inputs else [dataset]


def shuffle_seeds(dataset):
    """Returns the seeds of each `shuffle` in a dataset as (graph, operation), None for one that shuffles anew in every process.

    Nothing public tells them.
    """
    found = []
    if isinstance(dataset, private._ShuffleDataset):
        seeds = int(tf.get_static_value(dataset._seed)), int(tf.get_static_value(dataset._seed2))
        found.append(seeds if any(seeds) else None)
    for part in dataset._inputs():
        found.extend(shuffle_seeds(part))
    return found
