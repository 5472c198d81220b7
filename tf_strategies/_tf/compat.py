"""The only importer of `tensorflow.python`: each name with the reason why no public one serves.

Works unchanged on TensorFlow 2.15 and 2.21; what differs between releases is settled here.
"""

from __future__ import annotations

from tensorflow.python.data.experimental.ops import distribute as _distribute
from tensorflow.python.distribute import cross_device_ops as _cross_device_ops
from tensorflow.python.distribute import distribute_utils as _distribute_utils
from tensorflow.python.distribute import input_util as _input_util
from tensorflow.python.distribute import mirrored_strategy as _mirrored_strategy
from tensorflow.python.distribute import values as _values
from tensorflow.python.saved_model import save_context as _save_context

__all__ = [
    "MirroredExtended",
    "SyncOnReadVariable",
    "compute_batch_size",
    "distribute_dataset",
    "distribute_datasets_from_function",
    "is_mirrored",
    "is_saving",
    "is_sync_on_read_variable",
    "per_replica",
    "place",
    "set_cardinality",
]

# The base of the collective strategy's Extended: variables mirrored over the local devices, replica threads, merge_call and
# updates. The public tf.distribute.MirroredStrategy makes one of its own and cannot be given another.
MirroredExtended = _mirrored_strategy.MirroredExtended

# compute_batch_size(dataset): the batch size a dataset was built with, -1 where unknown. tf.data shows it nowhere else.
compute_batch_size = _distribute.compute_batch_size

# distribute_dataset(dataset, input_workers, strategy, ...): rebatching, sharding and empty batches for a worker that ran out,
# as all of tf.distribute does it. The public way in is the strategy itself, with the input context of one machine.
distribute_dataset = _input_util.get_distributed_dataset

# The same for datasets that the user makes for each input pipeline.
distribute_datasets_from_function = _input_util.get_distributed_datasets_from_function

# is_mirrored(value): whether the value is equal on all replicas by construction. tf.distribute.Mirrored does not exist publicly.
is_mirrored = _distribute_utils.is_mirrored

# is_saving(): whether a SavedModel is being written; TensorFlow shows no other sign of it.
is_saving = _save_context.in_save_context

# The class of variables that are reduced when read (metrics), to refine how they are saved; it has no public name.
SyncOnReadVariable = _values.SyncOnReadVariable

# place(tensor, destinations): a tensor or IndexedSlices copied to the devices of a value or device string.
place = _cross_device_ops.simple_broadcast


def per_replica(values):
    """Wraps one value for each local replica, as `Strategy.run` does; the class has no public constructor."""
    return _values.PerReplica(values)


def is_sync_on_read_variable(value):
    """Whether the value is a distributed variable that is reduced when read."""
    return isinstance(value, SyncOnReadVariable)


def set_cardinality(distributed, cardinality):
    """Sets the number of steps a distributed dataset says it has, and has its iterators ask all workers who still has data.

    Both are worked out from one worker's dataset, and cannot be given.
    """
    distributed._cardinality = cardinality
    distributed._enable_get_next_as_optional = True
