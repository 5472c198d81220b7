"""Names the kinds of values in annotations. TensorFlow is imported for type checkers only.

A value that may truly be anything is an alias of `Any` here, documented once; elsewhere annotations do not say `Any`
(tests/repo/test_annotations.py). The types of Keras are in `tf_strategies.keras.types` and `fit_types`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Protocol, Sequence, TypeVar, Union

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = [
    "BatchIterator",
    "ClusterResolver",
    "Destinations",
    "Fetch",
    "Json",
    "JsonObject",
    "Kwargs",
    "PerReplica",
    "Result",
    "Sendable",
    "Structure",
    "TensorLike",
    "TensorOrSlices",
    "Unchecked",
    "Value",
]

Result = TypeVar("Result")
"""The result of a function that another function calls or replaces."""

Value = TypeVar("Value")
"""A value that is returned as it came, or as another value of the same type."""

Structure = Any
"""A value of the user, or a list, tuple, dict or dataclass of structures, as in `tf.nest`: the arguments and results of replica
functions, the elements of datasets and their specs."""

Unchecked = Any
"""An argument as the user gave it. The function checks it and returns a value of the right type, or raises an OptionsError."""

Kwargs = Dict[str, Any]
"""Keyword arguments for a function, by name."""

Json = Any
"""A value that JSON can express: None, a bool, int, float or str, or a list or dict of these."""

JsonObject = Dict[str, Any]
"""A dict that JSON can express: a message, a record of counters or of a build, the facts of a checkpoint."""

Sendable = Any
"""A value that `tf_strategies.objects` can encode: None, a bool, int, float, str, bytes, a NumPy array or scalar
of numbers, or a list, tuple or dict of these."""

TensorLike = Union["tf.Tensor", "tf.Variable", "tf.types.experimental.TensorLike"]
"""A value that `tf.convert_to_tensor` takes: a tensor, variable, array, number or nested sequence of numbers."""

TensorOrSlices = Union["tf.Tensor", "tf.IndexedSlices"]
"""A tensor, or rows of one: the two forms of a gradient."""

PerReplica = Union["tf.Tensor", "tf.IndexedSlices", "tf.distribute.DistributedValues"]
"""A value for each local replica, or the only one if the worker has one replica."""

Destinations = Union[str, PerReplica, "tf.Variable"]
"""The places of a reduced value: a device, or the devices of another value."""

BatchIterator = Union["tf.data.Iterator", "tf.distribute.DistributedIterator"]
"""An iterator over the batches of a dataset, or over those of each local replica."""

Fetch = Union["tf.Operation", "tf.Tensor", "tf.Variable"]
"""A part of a graph that a session can run."""


class ClusterResolver(Protocol):
    """The part of `tf.distribute.cluster_resolver.ClusterResolver` that describes the cluster.

    Some resolvers also have `task_type` and `task_id`; of others, users set them.
    """

    def cluster_spec(self) -> ClusterSpec:
        """Returns the addresses of the tasks."""


class ClusterSpec(Protocol):
    """The part of `tf.train.ClusterSpec` that lists the tasks."""

    def as_dict(self) -> Mapping[str, Union[Sequence[object], Mapping[int, object]]]:
        """Returns the addresses of each job, by index if some indices are missing."""
