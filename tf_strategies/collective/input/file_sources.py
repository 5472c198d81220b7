"""Finds the files that a dataset reads, if tf.data can split them between workers."""

from __future__ import annotations

import re
from typing import List, NamedTuple, Optional, Tuple

import tensorflow as tf

from tf_strategies._tf import compat

__all__ = ["ENDLESS", "FileList", "count_files", "find_files"]

# Larger than any number of workers.
ENDLESS = 1 << 62

_READERS = re.compile(r"(Record|RecordIO|SSTable|TextLine)Dataset(V\d)?")
_IGNORE_STATE = 1
_NAMES_A_READ = 1024
# Only this many names of an endless list are read.
_NAMES_OF_ENDLESS = 1024


class FileList(NamedTuple):
    """One list of files that AutoShardPolicy.FILE would split between workers.

    Attributes:
        count: the number of elements, which are files or batches of files; or ENDLESS.
        names: the names in the order of the list, also from batches of names; None if the elements are not
            names. An endless list has only its first names.
    """

    count: int
    names: Optional[Tuple[str, ...]]


def count_files(lists: Optional[List[FileList]]) -> Optional[int]:
    """Returns the number of files of the shortest list, or None if there is no list."""
    return min((each.count for each in lists or ()), default=None)


def find_files(dataset: tf.data.Dataset, workers: int) -> Optional[List[FileList]]:
    """Returns the lists of files that AutoShardPolicy.FILE would split between workers. Works only eagerly.

    It applies the rewrite of tf.data, which adds a shard after each list of files, and reads the input of
    each shard.

    Returns:
        The lists, or None if the rewrite finds no files.
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
    inputs = [node.input[0] for node in graph.node if _splits_files(node)]
    return [_read_list(graph, name) for name in inputs] or None


def _reads_files(dataset: tf.data.Dataset) -> bool:
    """Returns True if the rewrite may find files. The rewrite logs an error for datasets that it cannot split.

    Only datasets of names are examined, because others may hold large arrays.
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
    """Returns True if the rewrite made this shard, and not the user."""
    return node.op == "ShardDataset" and node.attr["require_non_empty"].b


def _read_list(graph, name: str) -> FileList:
    """Reads the list of files that the tensor `name` of a serialized dataset holds."""
    end = next(node for node in graph.node if node.op == "_Retval")
    former, end.input[0] = end.input[0], name
    variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
    end.input[0] = former
    count = int(tf.raw_ops.DatasetCardinality(input_dataset=variant))
    count = ENDLESS if count == tf.data.INFINITE_CARDINALITY else count
    producer = next(node for node in graph.node if node.name == name.partition(":")[0].lstrip("^"))
    types = [tf.DType(each) for each in producer.attr["output_types"].list.type] or [tf.string]
    elements = tf.data.experimental.from_variant(variant, tuple(tf.TensorSpec(None, each) for each in types))
    if tf.string not in types:
        if count == tf.data.UNKNOWN_CARDINALITY:
            count = int(elements.reduce(tf.constant(0, tf.int64), lambda total, *_: total + 1))
        return FileList(count, None)
    if count == ENDLESS:
        elements = elements.take(_NAMES_OF_ENDLESS)
    lines = elements.map(lambda *parts: _one_line(parts[types.index(tf.string)])).batch(_NAMES_A_READ)
    entries = [line.decode("utf-8", "surrogateescape") for part in lines.as_numpy_iterator() for line in part]
    names = tuple(name for entry in entries for name in entry.split("\n"))
    return FileList(len(entries) if count == tf.data.UNKNOWN_CARDINALITY else count, names)


def _one_line(names: tf.Tensor) -> tf.Tensor:
    """Joins the names of one element, which may be a batch of names, into one line."""
    return tf.strings.reduce_join(tf.reshape(names, [-1]), separator="\n")
