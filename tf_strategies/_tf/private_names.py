"""Lists the private names of TensorFlow: where each is defined, and why no public name can replace it.

Nothing else imports `tensorflow.python`.
"""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Mapping

import tensorflow as tf

__all__ = ["ATTRIBUTES", "NAMES", "TESTED", "load", "private"]

TESTED = "2.15 to 2.21"

# For each module of tensorflow.python: each name, and the purpose it is needed for.
NAMES = {
    "autograph.core.ag_ctx": {
        "control_status_ctx": "to convert replica functions by autograph as `Strategy.run` does",
    },
    "autograph.impl.api": {
        "tf_convert": "to convert replica functions by autograph as `Strategy.run` does",
    },
    "data.experimental.ops.distribute": {
        "_AutoShardDataset": "one worker's share of a dataset; public only within a distributed dataset",
        "compute_batch_size": "the batch size a dataset was built with; no public function returns it",
    },
    "data.ops.dataset_ops": {
        "UnaryUnchangedStructureDataset": "the base of datasets; tf.data.experimental.from_variant holds no input",
    },
    "data.ops.multi_device_iterator_ops": {
        "gen_dataset_ops": "to keep the dataset of an iterator of several devices until the iterator has ended",
    },
    "data.ops.shard_op": {
        "_ShardDataset": "to find `shard` in a pipeline",
    },
    "data.ops.shuffle_op": {
        "_ShuffleDataset": "to find `shuffle` in a pipeline and its seeds",
    },
    "data.util.structure": {
        "from_compatible_tensor_list": "an element of a dataset from its components, in an operation of our own",
        "get_flat_tensor_specs": "the components of an element of a dataset, as an operation gets them",
    },
    "distribute.cross_device_ops": {
        "simple_broadcast": "copies a tensor or IndexedSlices to the devices of a value",
    },
    "distribute.distribute_coordinator_context": {
        "get_current_worker_context": "the session of Estimator's coordinator on this thread; None without one",
    },
    "distribute.distribute_utils": {
        "is_mirrored": "whether a value is equal on all replicas by construction",
        "regroup": "one structure of per-replica values, as `Strategy.run` returns it",
        "select_replica": "one replica's part of a structure of arguments, as `Strategy.run` takes it",
    },
    "distribute.input_lib": {
        "DistributedDataset": "to watch the batches of a distributed dataset before they are split",
    },
    "distribute.input_util": {
        "get_distributed_dataset": "to rebatch and shard a dataset as all of tf.distribute does",
        "get_distributed_datasets_from_function": "the same, of datasets that the user makes for each pipeline",
    },
    "distribute.mirrored_strategy": {
        "MirroredExtended": "the base of the collective strategy's Extended; the public strategy makes its own",
    },
    "distribute.one_device_strategy": {
        "OneDeviceExtended": "the base of the Extended of parameter servers: one replica, variables anywhere",
    },
    "distribute.values": {
        "MirroredVariable": "variables that are written on every replica, to know when they are",
        "PerReplica": "one value for each replica; the class has no public constructor",
        "SyncOnReadVariable": "variables that are reduced when read (metrics), to save them",
    },
    "eager.cancellation": {
        "CancellationManager": "to end functions that wait for a remote device; only the C interface is public",
        "CancellationManagerContext": "to end functions that wait for a remote device; only the C interface is public",
    },
    "eager.context": {
        "context": "to set the seed of eager operations without restarting their numbers",
        "global_seed": "the seed that eager random operations take",
    },
    "eager.polymorphic_function.polymorphic_function": {
        "Function": "what tf.function returns; the public class cannot be cloned with its arguments",
    },
    "eager.record": {
        "could_possibly_record": "whether a tf.GradientTape records",
        "record_operation": "to record a read of a variable as one operation",
        "stop_recording": "to record a read of a variable as one operation",
    },
    "framework.auto_control_deps_utils": {
        "get_read_write_resource_inputs": "the resources that an operation writes, also in functions that it calls",
    },
    "framework.func_graph": {
        "func_graph_from_py_func": "a function that an operation has as an attribute, built once",
    },
    "pywrap_tfe": {
        "TFE_Py_TapeSetIsStopped": "to train within a read that is recorded as one operation",
        "TFE_Py_TapeSetRestartOnThread": "to train within a read that is recorded as one operation",
        "TFE_Py_TapeSetStopOnThread": "to train within a read that is recorded as one operation",
    },
    "ops.control_flow_util": {
        "GraphOrParentsInXlaContext": "whether operations made now are compiled by XLA",
    },
    "ops.control_flow_util_v2": {
        "create_new_tf_function": "a function that an operation has as an attribute, built once",
        "unique_fn_name": "a function that an operation has as an attribute, built once",
    },
    "ops.control_flow_v2_func_graphs": {
        "CondBranchFuncGraph": "whether a graph is a body of tf.cond or tf.while_loop",
        "WhileBodyFuncGraph": "whether a graph is a body of tf.cond or tf.while_loop",
        "WhileCondFuncGraph": "whether a graph is a body of tf.cond or tf.while_loop",
    },
    "ops.handle_data_util": {
        "create_handle_data": "a handle to a variable that processes share by name",
        "set_handle_data": "a handle to a variable that processes share by name",
    },
    "ops.resource_variable_ops": {
        "BaseResourceVariable": "what Keras, tapes and functions know as a variable; tf.Variable makes its own handle",
        "ResourceVariable": "a variable of one process, whatever strategy is in scope",
        "VariableSpec": "how functions tell their arguments that are variables apart",
        "variable_accessed": "to tell tapes that a variable was read",
    },
    "saved_model.save_context": {
        "in_save_context": "whether a SavedModel is being written",
    },
    "util.dispatch": {
        "register_dispatchable_type": "to let tf.experimental.dispatch_for_api know a class that is no ExtensionType",
    },
}

# For each class: attributes without a public name that are read or set on its objects.
ATTRIBUTES = {
    "DistributedDataset": {
        "_cardinality": "the number of steps it says it has",
        "_cloned_datasets": "the parts of the local workers",
        "_datasets": "the parts of the local workers, where it was made of a function",
        "_enable_get_next_as_optional": "whether workers ask one another who still has data",
    },
    "Dataset": {
        "_functions": "the functions of a pipeline",
        "_inputs": "the datasets that it reads",
        "_seed": "of a shuffle",
        "_seed2": "of a shuffle",
    },
    "DistributedIterator and OwnedIterator": {
        "_device_iterators": "the iterators of the devices",
        "_iterator": "the iterator that feeds the devices",
        "_iterator_resource": "the handle of an iterator",
        "_iterators": "the iterators of the local workers",
    },
    "tf.Variable": {
        "_distributed_container": "the distributed variable that it is a part of",
        "_handle": "the handle, which is another one when the server of the variable has started again",
        "_variable": "the variable that an AutoCastVariable of Keras 2 casts",
    },
    "Context": {
        "_rng": "the numbers of eager random operations",
        "_seed": "the seed that eager random operations take",
    },
    "StrategyExtended": {
        "_get_replica_id_in_sync_group": "a local replica's number among all",
    },
    "Function": {
        "_clone": "the same function of another Python function, with its other arguments",
    },
    "Graph and Operation": {
        "_add_control_dependencies": "whether a branch runs all its side effects in order",
        "_add_control_inputs": "adds a dependency to an operation that exists",
    },
}


def load(names: Mapping[str, Mapping[str, str]]) -> SimpleNamespace:
    """Returns an object that has all these names of the installed TensorFlow as attributes.

    Args:
        names: a table such as `NAMES`.

    Raises:
        ImportError: TensorFlow lacks some of them. The message lists all that are missing.
    """
    found, missing = SimpleNamespace(), []
    for module, reasons in names.items():
        for name in reasons:
            try:
                setattr(found, name, getattr(importlib.import_module(f"tensorflow.python.{module}"), name))
            except (ImportError, AttributeError):
                missing.append(f"{module}.{name}")
    if missing:
        raise ImportError(
            f"tf_strategies is tested with TensorFlow {TESTED}. The installed TensorFlow {tf.__version__} lacks these names, "
            f"which tf_strategies needs: {', '.join(missing)}. Install a TensorFlow of that range, or a newer tf_strategies."
        )
    return found


private = load(NAMES)
