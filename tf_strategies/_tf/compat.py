"""The only importer of `tensorflow.python`: each name with the reason why no public one serves.

Works unchanged on TensorFlow 2.15 and 2.21; what differs between releases is settled here.
"""

from __future__ import annotations

import contextlib

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx as _autograph_context
from tensorflow.python.autograph.impl import api as _autograph
from tensorflow.python.data.experimental.ops import distribute as _distribute
from tensorflow.python.data.ops import shuffle_op as _shuffle
from tensorflow.python.distribute import cross_device_ops as _cross_device_ops
from tensorflow.python.distribute import distribute_coordinator_context as _coordinator_context
from tensorflow.python.distribute import distribute_utils as _distribute_utils
from tensorflow.python.distribute import input_lib as _input_lib
from tensorflow.python.distribute import input_util as _input_util
from tensorflow.python.distribute import mirrored_strategy as _mirrored_strategy
from tensorflow.python.distribute import one_device_strategy as _one_device_strategy
from tensorflow.python.distribute import values as _values
from tensorflow.python.eager import cancellation as _cancellation
from tensorflow.python.eager import context as _context
from tensorflow.python.eager import record as _record
from tensorflow.python.eager.polymorphic_function import polymorphic_function as _polymorphic_function
from tensorflow.python.framework import auto_control_deps_utils as _auto_control_deps_utils
from tensorflow.python.framework import func_graph as _func_graph
from tensorflow.python.framework import ops as _ops
from tensorflow.python.ops import control_flow_util as _control_flow_util
from tensorflow.python.ops import control_flow_util_v2 as _control_flow_util_v2
from tensorflow.python.ops import control_flow_v2_func_graphs as _func_graphs
from tensorflow.python.ops import handle_data_util as _handle_data_util
from tensorflow.python.ops import resource_variable_ops as _resource_variable_ops
from tensorflow.python.saved_model import save_context as _save_context
from tensorflow.python.util import dispatch as _dispatch

__all__ = [
    "BaseResourceVariable",
    "CancellationManager",
    "CancellationManagerContext",
    "Function",
    "MirroredExtended",
    "MirroredVariable",
    "OneDeviceExtended",
    "ResourceVariable",
    "SyncOnReadVariable",
    "VariableSpec",
    "ask_who_has_data",
    "auto_sharded",
    "compute_batch_size",
    "converted_by_autograph",
    "coordinator_context",
    "dataset_sources",
    "defined_function",
    "distribute_dataset",
    "distribute_datasets_from_function",
    "in_xla",
    "is_branch_of",
    "is_differentiating",
    "is_mirrored",
    "is_saving",
    "is_sync_on_read_variable",
    "iterator_handles",
    "op_seed",
    "operations_of_functions",
    "optional_batches",
    "orderly_branches",
    "own_cardinality",
    "per_replica",
    "place",
    "random_numbers_of_iterators",
    "record_read",
    "register_dispatchable_type",
    "regroup",
    "run_before",
    "run_independently",
    "select_replica",
    "set_cardinality",
    "set_op_seed",
    "show_iterators",
    "shuffle_seeds",
    "variable_accessed",
    "variable_handle",
    "whole_variable",
    "written_resources",
]

# The base of the collective strategy's Extended: variables mirrored over the local devices, replica threads, merge_call and
# updates. The public tf.distribute.MirroredStrategy makes one of its own and cannot be given another.
MirroredExtended = _mirrored_strategy.MirroredExtended

# The base of the Extended of parameter servers: one replica on one device, whose variables may be anywhere.
OneDeviceExtended = _one_device_strategy.OneDeviceExtended

# What Keras, tapes and functions know as a variable. tf.Variable makes its own handle, and its handle is all it can read.
BaseResourceVariable = _resource_variable_ops.BaseResourceVariable

# A variable of one process, whatever strategy is in scope; tf.Variable asks the strategy to make it.
ResourceVariable = _resource_variable_ops.ResourceVariable

# By what functions tell variables apart that are their arguments; public only as what tf.type_spec_from_value returns.
VariableSpec = _resource_variable_ops.VariableSpec

# Ends functions that wait for a remote device; public is only the C interface.
CancellationManager = _cancellation.CancellationManager
CancellationManagerContext = _cancellation.CancellationManagerContext

_CONTROL_FLOW_GRAPHS = (
    _func_graphs.CondBranchFuncGraph,
    _func_graphs.WhileCondFuncGraph,
    _func_graphs.WhileBodyFuncGraph,
)

# coordinator_context(): of the distribute coordinator that runs Estimator's training on this thread; None without one. Estimator
# itself asks here for the session to train with.
coordinator_context = _coordinator_context.get_current_worker_context

# distribute_datasets_from_function(fn, ...): as `distribute_dataset` below, of datasets that the user makes for each pipeline.
distribute_datasets_from_function = _input_util.get_distributed_datasets_from_function

# is_mirrored(value): whether the value is equal on all replicas by construction. tf.distribute.Mirrored does not exist publicly.
is_mirrored = _distribute_utils.is_mirrored

# is_saving(): whether a SavedModel is being written; TensorFlow shows no other sign of it.
is_saving = _save_context.in_save_context

# The class of variables that are reduced when read (metrics), to refine how they are saved; it has no public name.
SyncOnReadVariable = _values.SyncOnReadVariable

# The class of variables that are written on every replica (weights, statistics), to know when replicas write them.
MirroredVariable = _values.MirroredVariable

# The class of what tf.function returns, to lift one out of the replicas as TensorFlow does; public is only an abstract one, which
# has no _clone to keep the other arguments of tf.function.
Function = _polymorphic_function.Function

# register_dispatchable_type(cls): a decorator, by which tf.experimental.dispatch_for_api knows a class that is no ExtensionType.
register_dispatchable_type = _dispatch.register_dispatchable_type

# variable_accessed(variable): tells tapes that it was read, as reading a tf.Variable does.
variable_accessed = _resource_variable_ops.variable_accessed

# select_replica(local_replica, values): the part of one local replica in a structure of arguments, as `Strategy.run` takes it.
select_replica = _distribute_utils.select_replica

# regroup(values): one structure of per-replica values from those of each local replica, as `Strategy.run` returns it.
regroup = _distribute_utils.regroup

# place(tensor, destinations): a tensor or IndexedSlices copied to the devices of a value or device string.
place = _cross_device_ops.simple_broadcast


def per_replica(values):
    """Wraps one value for each local replica, as `Strategy.run` does; the class has no public constructor."""
    return _values.PerReplica(values)


def whole_variable(value):
    """Returns the variable that `value` casts, or of which it is one replica's part, or `value` itself.

    None if `value` is no variable.
    """
    value = getattr(value, "__dict__", {}).get(
        "_variable", value
    )  # of a variable of Keras 2 that casts itself
    if not isinstance(value, tf.Variable):
        return None
    container = getattr(value, "_distributed_container", None)
    return value if container is None else container()


def is_sync_on_read_variable(value):
    """Returns True if the value is a distributed variable that is reduced when read."""
    return isinstance(value, SyncOnReadVariable)


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
    return _distribute.compute_batch_size(dataset)


class _WatchedDataset(_input_lib.DistributedDataset):
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


def distribute_dataset(dataset, input_workers, strategy, *, watch=None, **kwargs):
    """Rebatches and shards a dataset as all of tf.distribute does, with empty batches for a worker that ran out.

    The public way in is the strategy itself, with the input context of one machine. `watch` is a function of the dataset that
    returns one with the same elements; it is applied after the batch size was found out.
    """
    if watch is None:
        return _input_util.get_distributed_dataset(dataset, input_workers, strategy, **kwargs)
    return _WatchedDataset(watch, input_workers, strategy, dataset, **kwargs)


def random_numbers_of_iterators(seed):
    """Returns a dataset of random numbers that differ between iterators.

    They are drawn from the seed and the count of iterators that were made before.

    `Dataset.random` draws from `tf.random.set_seed`, too, which may differ between workers.
    """
    variant = tf.raw_ops.RandomDatasetV2(
        seed=seed,
        seed2=1,
        seed_generator=tf.raw_ops.DummySeedGenerator(),
        output_types=[tf.int64],
        output_shapes=[[]],
        rerandomize_each_iteration=True,
    )
    return tf.data.experimental.from_variant(variant, tf.TensorSpec([], tf.int64))


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
    return _distribute._AutoShardDataset(dataset, workers, worker)


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
    if isinstance(dataset, _shuffle._ShuffleDataset):
        seeds = int(tf.get_static_value(dataset._seed)), int(tf.get_static_value(dataset._seed2))
        found.append(seeds if any(seeds) else None)
    for part in dataset._inputs():
        found.extend(shuffle_seeds(part))
    return found


def converted_by_autograph(fn):
    """Returns the replica function as autograph converts it where `Strategy.run` is called in a tf.function, as it is elsewhere.

    TensorFlow converts what it finds in user code by itself, but not what runs inside functions of a library.
    """
    if _context.executing_eagerly():
        return fn
    return _autograph.tf_convert(fn, _autograph_context.control_status_ctx())


def op_seed():
    """Returns the global seed that random operations made now take; None if there is none. No public function reads it."""
    return _context.global_seed() if _context.executing_eagerly() else _ops.get_default_graph().seed


def set_op_seed(seed):
    """Sets what `op_seed` returns, for this graph or all eager operations.

    tf.random.set_seed would also restart the numbers of operations, and does nothing for a graph that is being made.
    """
    if _context.executing_eagerly():
        _context.context()._seed = seed
    else:
        _ops.get_default_graph().seed = seed


def in_xla():
    """Returns True if operations made now are to be compiled by XLA (jit_compile=True); TensorFlow shows it nowhere else."""
    return _control_flow_util.GraphOrParentsInXlaContext(_ops.get_default_graph())


def is_differentiating():
    """Returns True if a tf.GradientTape records what is computed now; no public function tells."""
    return _record.could_possibly_record()


def written_resources(op):
    """Returns the handles among an operation's inputs that it writes to, also in functions that it calls.

    No public function returns them.
    """
    return list(_auto_control_deps_utils.get_read_write_resource_inputs(op)[1])


def variable_handle(shape, dtype, name, *, container, shared_name, op_name=None):
    """Returns a handle to a variable that processes share by name.

    tf.Variable gives its own variables names that no other process can know.
    """
    handle = tf.raw_ops.VarHandleOp(
        shape=shape,
        dtype=dtype,
        container=container,
        shared_name=shared_name,
        debug_name=name,
        name=op_name,
    )
    data = _handle_data_util.create_handle_data(tf.TensorShape(shape), dtype)
    _handle_data_util.set_handle_data(handle, data)
    return handle


def record_read(variable, forward, backward):
    """Returns the result of `forward()` and records it on tapes as one read of the variable.

    `backward` computes the gradient of that read.

    tf.custom_gradient would need the read to have the variable's handle as an input.
    """
    variable_accessed(variable)
    with _record.stop_recording():
        result = forward()
    _record.record_operation(
        "ReadVariableOp", [result], [variable.handle], lambda upstream: [backward(upstream)], None
    )
    return result


def is_branch_of(graph, outer):
    """Returns True if `graph` is `outer`, or a body of tf.cond or tf.while_loop within it.

    Such a body runs in each call of the function around it.

    The classes have no public name.
    """
    while graph is not outer:
        if not isinstance(graph, _CONTROL_FLOW_GRAPHS):
            return False
        graph = graph.outer_graph
    return True


def defined_function(name, build):
    """Returns the name of a function that is defined in the current graph, and the tensors it captures.

    The function has no arguments and no results.

    tf.function builds such a body twice, and calls it where it is used; here an operation has the function as an attribute.
    """
    graph = _func_graph.func_graph_from_py_func(_control_flow_util_v2.unique_fn_name("", name), build, (), {})
    return _control_flow_util_v2.create_new_tf_function(graph), graph.external_captures


@contextlib.contextmanager
def orderly_branches():
    """Opens a context in which branches run all operations that have side effects, in order.

    This is for branches in a graph that a session runs.

    In functions they do; in such graphs only what their results need, and there is no public switch.
    """
    graph = _ops.get_default_graph()
    before, graph._add_control_dependencies = graph._add_control_dependencies, True
    try:
        yield
    finally:
        graph._add_control_dependencies = before


def run_before(op, others):
    """Has a session that runs the operation of its graph run others before, which were made later."""
    op._add_control_inputs(others)


def run_independently(op):
    """Has a function run the operation in each call, in no order with others that have side effects. Returns whether it can.

    A function runs stateful operations one after another, and this can be switched off only for TensorFlow's own. A graph that is
    no function, as those of Session, orders nothing and runs only what is asked for.
    """
    manager = getattr(op.graph, "experimental_acd_manager", None)
    if manager is None:
        return False
    manager.run_independently(op)
    return True
