"""Which files a dataset reads, as far as tf.data can split them between workers."""

from __future__ import annotations

import re
from typing import Optional

import tensorflow as tf

from tf_strategies._tf import compat

__all__ = ["ENDLESS", "count_files"]

# More files than there can be workers.
ENDLESS = 1 << 62

_READERS = re.compile(r"(Record|RecordIO|SSTable|TextLine)Dataset(V\d)?")
_IGNORE_STATE = 1


def count_files(dataset: tf.data.Dataset, workers: int) -> Optional[int]:
    """How many files AutoShardPolicy.FILE would split between workers; the smallest number where there are several sources.

    tf.data's own rewrite is asked: it puts a shard after each list of files, whose input is counted. Eagerly only.

    Returns:
        The number, or ENDLESS. None where the rewrite finds no files.
    """
    if not _reads_files(dataset):
        return None
    try:
        rewritten = tf.raw_ops.AutoShardDataset(
            input_dataset=tf.data.experimental.to_variant(dataset),
            num_workers=workers,
            index=0,
            output_types=[tf.int64],
            output_shapes=[[]],
            auto_shard_policy=int(tf.data.experimental.AutoShardPolicy.FILE),
            num_replicas=workers,
        )
    except tf.errors.NotFoundError:
        return None
    graph = _graph(rewritten)
    lists = [node.input[0] for node in graph.node if _splits_files(node)]
    return min((_count_elements(graph, name) for name in lists), default=None)


def _reads_files(dataset: tf.data.Dataset) -> bool:
    """Whether the rewrite may find files. It need not be asked about anything else: it reports what it cannot split as an error.

    Only a dataset that is made of names alone is looked into, for others may hold large arrays.
    """
    specs = [source.element_spec for source in compat.dataset_sources(dataset)]
    if any(not isinstance(spec, tf.TensorSpec) or spec.dtype != tf.string for spec in specs):
        return False
    graph = _graph(tf.data.experimental.to_variant(dataset))
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return any(_READERS.search(node.op) for node in nodes)


def _graph(variant: tf.Tensor) -> tf.compat.v1.GraphDef:
    serialized = tf.raw_ops.DatasetToGraphV2(
        input_dataset=variant, external_state_policy=_IGNORE_STATE, strip_device_assignment=True
    )
    return tf.compat.v1.GraphDef.FromString(serialized.numpy())


def _splits_files(node) -> bool:
    """Whether this is a shard of the rewrite: those of users may be empty."""
    return node.op == "ShardDataset" and node.attr["require_non_empty"].b


def _count_elements(graph, name: str) -> int:
    """The number of elements of the dataset that the tensor `name` of a serialized dataset holds."""
    end = next(node for node in graph.node if node.op == "_Retval")
    former, end.input[0] = end.input[0], name
    variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    end.input[0] = former
    count = int(tf.raw_ops.DatasetCardinality(input_dataset=variant))
    if count == tf.data.INFINITE_CARDINALITY:
        return ENDLESS
    if count == tf.data.UNKNOWN_CARDINALITY:
        names = tf.data.experimental.from_variant(variant, tf.TensorSpec(None, tf.string))
        return int(names.reduce(tf.constant(0, tf.int64), lambda total, _: total + 1))
    return count
