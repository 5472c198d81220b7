"""The patch table: lists every name of Keras that the bridge replaces, and every private name that it reads.

`Patch.owner` is the place of a name: "Model" is a class of the package, "src.losses.loss" one of its modules,
and "src.engine.data_adapter:DataHandler" a class of a module. `since` and `until` are versions of Keras;
tf_keras has those of TensorFlow, and counts as Keras 2.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, Callable, Iterator, NamedTuple, Tuple

from tf_strategies.keras import (
    callback_list,
    data_loop,
    embedding,
    first_batch,
    global_metrics,
    joint_gradients,
    joint_losses,
    loops,
    metric_variables,
    ownership,
    saving,
    seeds,
    server_variables,
    shuffling,
    summed_gradients,
)
from tf_strategies.keras.versions import number

__all__ = ["OF_TENSORFLOW", "PATCHES", "READS", "Patch", "Read", "find_owner", "patches_of", "reads_of"]

_FIRST, _KERAS3, _NONE = "2.0", "3.0", "99.0"


class Patch(NamedTuple):
    """A name of Keras that the bridge replaces.

    Attributes:
        owner: the module or class that has the name. name: the name. ours: returns the replacement, given the
            original and the package.
        reason: the reason why the name is replaced.
        since: the first version of Keras to which the patch applies.
        until: the first later version to which it does not apply.
    """

    owner: str
    name: str
    ours: Callable[[Any, Any], Any]
    reason: str
    since: str = _FIRST
    until: str = _NONE


class Read(NamedTuple):
    """A private name that is read or set on objects of Keras.

    Attributes:
        owner: where the name is; "" for a name that several classes have.
        name: the name.
        reason: the purpose of the name.
        since: the first version of Keras in which the name is read.
        until: the first later version in which it is not read.
    """

    owner: str
    name: str
    reason: str
    since: str = _FIRST
    until: str = _NONE


_HANDLER = "src.engine.data_adapter:DataHandler"
_ITERATOR = "src.backend.tensorflow.trainer:TFEpochIterator"
_OPTIMIZER2 = "src.optimizers.legacy.optimizer_v2:OptimizerV2"
_SCALED2 = "src.mixed_precision.loss_scale_optimizer"

PATCHES: Tuple[Patch, ...] = (
    # Training, evaluation and prediction.
    Patch(
        "Model",
        "fit",
        loops.fit,
        "tells the strategy that training runs; refuses models that it cannot train",
    ),
    Patch("Model", "evaluate", loops.evaluate, "tells the strategy that the model is only evaluated"),
    Patch("Model", "predict", loops.predict, "the same, and returns rows in order"),
    Patch(
        "Model",
        "make_train_function",
        loops.train_function,
        "makes steps joint steps, also those of train_on_batch",
    ),
    Patch(
        "Model",
        "make_test_function",
        loops.test_function,
        "makes steps joint steps, also those of test_on_batch",
    ),
    Patch(
        "Model",
        "predict_on_batch",
        loops.predict_on_batch,
        "splits the batch, as Keras 2 does",
        _KERAS3,
    ),
    Patch("Model", "make_predict_function", loops.predict_function, "lets the strategy call the steps"),
    # Callbacks and logs.
    Patch(
        "callbacks.CallbackList",
        "__init__",
        callback_list.init,
        "only the chief writes; all workers stop after the same step",
    ),
    Patch(
        "Model", "get_metrics_result", global_metrics.results, "makes the logs of a batch count all workers"
    ),
    Patch(
        "Model",
        "_get_metrics_result_or_logs",
        global_metrics.logs_of_epoch,
        "makes the logs of an epoch count all workers",
        _KERAS3,
    ),
    Patch(
        "Model",
        "_validate_and_get_metrics_result",
        global_metrics.logs_of_epoch,
        "the same in Keras 2",
        until=_KERAS3,
    ),
    Patch(
        "src.backend:Variable",
        "_initialize",
        metric_variables.initialize,
        "adds up the counts of replicas once",
        _KERAS3,
        "3.10",
    ),
    Patch(
        "src.backend:Variable",
        "_initialize_with_initializer",
        metric_variables.initialize,
        "adds up the counts of replicas once",
        "3.5",
        "3.9",
    ),
    # Saving.
    Patch("Model", "save", saving.alone, "lets one worker save alone"),
    Patch("Model", "save_weights", saving.alone, "lets one worker save alone"),
    Patch("Model", "load_weights", saving.alone, "lets one worker load alone"),
    # Losses.
    Patch("losses.Loss", "__call__", joint_losses.call_loss, "makes sums those of the joint batch"),
    Patch(
        "metrics.Mean",
        "update_state",
        joint_losses.update_mean,
        "counts a scalar once in a step, not once for each replica",
    ),
    Patch(
        "src.trainers.compile_utils:CompileLoss",
        "__call__",
        joint_losses.call_compiled,
        "marks compiled losses",
        _KERAS3,
    ),
    Patch(
        "src.engine.compile_utils:LossesContainer",
        "__call__",
        joint_losses.call_compiled,
        "marks compiled losses",
        until=_KERAS3,
    ),
    Patch(
        "src.losses.loss",
        "reduce_weighted_values",
        joint_losses.reduce_keras3,
        "divides means by the valid rows of all replicas",
        _KERAS3,
    ),
    Patch(
        "src.utils.losses_utils",
        "apply_valid_mask",
        joint_losses.apply_valid_mask_keras2,
        "divides means by the valid rows of all replicas",
        until=_KERAS3,
    ),
    Patch(
        "src.losses.loss",
        "scale_loss_for_distribution",
        joint_losses.scale_in_loops,
        "replicas with unequal rows, in loops of the user's own",
        "3.8",
    ),
    Patch(
        "src.losses.loss",
        "unscale_loss_for_distribution",
        joint_losses.unscale_in_loops,
        "the inverse, for logs",
        "3.8",
    ),
    Patch(
        "src.utils.losses_utils",
        "scale_loss_for_distribution",
        joint_losses.scale_in_loops,
        "replicas with unequal rows, in loops of the user's own",
        until=_KERAS3,
    ),
    # Gradients, outside of the steps of `fit`. Keras 2 adds them up before it clips or looks for Inf.
    Patch(
        "optimizers.Optimizer",
        "apply",
        summed_gradients.apply,
        "names gradients by their variables, and refuses unsupported options",
        _KERAS3,
    ),
    Patch(
        "optimizers.Optimizer",
        "_clip_gradients",
        summed_gradients.clip_gradients,
        "clips the sums over replicas",
        _KERAS3,
    ),
    Patch(
        "optimizers.Optimizer",
        "_all_reduce_sum_gradients",
        summed_gradients.all_reduce_sum_gradients,
        "does not add up gradients twice",
        _KERAS3,
    ),
    Patch(
        "optimizers.Optimizer",
        "_overwrite_model_variables_with_average_value",
        summed_gradients.overwrite_with_average,
        "updates each replica from within itself",
        _KERAS3,
    ),
    Patch(
        "optimizers.LossScaleOptimizer",
        "_tf_apply",
        summed_gradients.apply_scaled,
        "checks the sums over replicas for Inf",
        _KERAS3,
    ),
    Patch(
        "optimizers.LossScaleOptimizer",
        "_stateful_handle_finite_grads",
        summed_gradients.handle_finite_grads,
        "does not add up gradients twice",
        _KERAS3,
    ),
    # The owner of a variable, and its place.
    Patch(
        "optimizers.Optimizer", "__init__", ownership.init_optimizer, "records the variables of optimizers"
    ),
    Patch(
        _OPTIMIZER2,
        "__init__",
        ownership.init_optimizer,
        "records the variables of optimizers",
        until=_KERAS3,
    ),
    Patch(
        f"{_SCALED2}:LossScaleOptimizer",
        "__init__",
        ownership.init_optimizer,
        "records loss scales",
        until=_KERAS3,
    ),
    Patch(
        f"{_SCALED2}:LossScaleOptimizerV3",
        "__init__",
        ownership.init_optimizer,
        "records loss scales",
        until=_KERAS3,
    ),
    Patch(
        "layers.RNN",
        "_create_state_variables",
        ownership.mark_states,
        "records that states belong to the rows of a replica",
        _KERAS3,
    ),
    Patch(
        "Variable",
        "assign_add",
        server_variables.assign_add,
        "adds on the servers, so that no count is lost",
        _KERAS3,
    ),
    Patch(
        "Variable",
        "assign_sub",
        server_variables.assign_sub,
        "subtracts on the servers, so that no count is lost",
        _KERAS3,
    ),
    Patch("layers.Embedding", "call", embedding.call, "looks up rows in place", _KERAS3),
    # Random numbers.
    Patch(
        "random.SeedGenerator", "next", seeds.next_seed, "makes each replica draw different numbers", _KERAS3
    ),
    Patch(
        "src.backend:RandomGenerator",
        "make_legacy_seed",
        seeds.seed_of_worker,
        "makes each worker draw different numbers",
        until=_KERAS3,
    ),
    Patch(
        "src.trainers.data_adapters.py_dataset_adapter",
        "random",
        shuffling.shared_random,
        "one order",
        _KERAS3,
    ),
    Patch(
        "src.engine.data_adapter",
        "random",
        shuffling.shared_random,
        "shuffles a Sequence in the same order on all workers",
        until=_KERAS3,
    ),
    Patch(
        "src.utils.data_utils",
        "random",
        shuffling.shared_random,
        "shuffles a Sequence in the same order on all workers",
        until=_KERAS3,
    ),
    # Data.
    Patch(
        _ITERATOR,
        "__init__",
        data_loop.init_iterator_keras3,
        "counts steps after the data are split",
        _KERAS3,
    ),
    Patch(
        "src.trainers.data_adapters",
        "is_tf_dataset",
        data_loop.accept_distributed_data,
        "Keras before 3.9 does not know data of distribute_datasets_from_function",
        _KERAS3,
        "3.9",
    ),
    Patch(_ITERATOR, "reset", data_loop.reset_iterator_keras3, "keeps the count of steps", "3.7"),
    Patch(
        "Model",
        "_maybe_symbolic_build",
        first_batch.build,
        "builds a model without taking a batch",
        "3.5",
    ),
    Patch(
        _HANDLER,
        "__init__",
        data_loop.init_handler_keras2,
        "shuffles arrays in the same order on all workers",
        until=_KERAS3,
    ),
    Patch(
        _HANDLER,
        "_configure_dataset_and_inferred_steps",
        data_loop.configure_steps_keras2,
        "counts steps after the data are split",
        until=_KERAS3,
    ),
    Patch(
        _HANDLER,
        "enumerate_epochs",
        data_loop.enumerate_epochs_keras2,
        "uses the number of batches of each worker",
        until=_KERAS3,
    ),
)

# Public names of TensorFlow, replaced once for all Kerases of a process.
OF_TENSORFLOW: Tuple[Patch, ...] = (
    Patch(
        "GradientTape",
        "gradient",
        joint_gradients.gradient,
        "makes the gradients of a step those of the joint batch",
    ),
    Patch(
        "GradientTape",
        "jacobian",
        joint_gradients.jacobian,
        "it calls `gradient` in a loop, where no collective can run",
    ),
    Patch(
        "nn",
        "compute_average_loss",
        joint_gradients.compute_average_loss,
        "refuses the convention of custom loops in steps",
    ),
)

READS: Tuple[Read, ...] = (
    Read("", "_flatten_layers", "all layers of a model, inner ones too", _FIRST, _NONE),
    Read("", "_value", "TensorFlow's variable of a Keras variable", _KERAS3, _NONE),
    Read(_ITERATOR, "_distributed_dataset", "the iterator of a fit", _KERAS3, _NONE),
    Read(
        _ITERATOR,
        "_current_iterator",
        "whether an epoch continues with the iterator of the last one",
        _KERAS3,
        _NONE,
    ),
    Read(_ITERATOR, "_enumerate_iterator", "to start in the middle of an epoch", "3.7", _NONE),
    Read(_ITERATOR, "_num_batches", "the steps of an epoch", _KERAS3, _NONE),
    Read(_ITERATOR, "_steps_seen", "the position in the data at which an epoch starts", _KERAS3, _NONE),
    Read(_ITERATOR, "_distribute_strategy", "the model that the data are for", _KERAS3, _NONE),
    Read("Model", "_distribute_strategy", "whether a model was made in a scope", _KERAS3, _NONE),
    Read("Model", "_initial_epoch", "to begin at a later epoch", _KERAS3, _NONE),
    Read("layers.Embedding", "_embeddings", "the table without LoRA", _KERAS3, _NONE),
    Read(
        "optimizers.Optimizer",
        "_trainable_variables",
        "the variables of gradients that come without",
        _KERAS3,
        _NONE,
    ),
    Read(
        "optimizers.Optimizer",
        "_accumulated_gradients",
        "what each replica keeps of its gradients",
        _KERAS3,
        _NONE,
    ),
    Read(
        "optimizers.Optimizer", "_model_variables_moving_average", "the averages of weights", _KERAS3, _NONE
    ),
    Read(_HANDLER, "_adapter", "the number of batches, and whether an iterator is kept", _FIRST, _KERAS3),
    Read(_HANDLER, "_dataset", "the iterator of a fit", _FIRST, _KERAS3),
    Read(_HANDLER, "_infer_steps", "the steps of an epoch", _FIRST, _KERAS3),
    Read(_HANDLER, "_inferred_steps", "the steps of an epoch", _FIRST, _KERAS3),
    Read(_HANDLER, "_initial_epoch", "which epoch it is", _FIRST, _KERAS3),
    Read(_HANDLER, "_steps_per_epoch", "whether the user gave it", _FIRST, _KERAS3),
    Read(_HANDLER, "_validate_data_handler", "as Keras does after it", _FIRST, _KERAS3),
    Read(
        "src.engine.data_adapter", "_make_class_weight_map_fn", "class weights of a dataset", _FIRST, _KERAS3
    ),
    Read("Model", "_training_state", "to begin at a later epoch", _FIRST, _KERAS3),
    Read("Model", "_train_counter", "the count of steps", _FIRST, _KERAS3),
    Read("Model", "_is_compiled", "whether compile was called", _FIRST, _KERAS3),
    Read("", "_random_generator", "the random states of layers", _FIRST, _KERAS3),
    Read("", "_generator", "the random states of layers", _FIRST, _KERAS3),
    Read("", "_built", "of a legacy optimizer", _FIRST, _KERAS3),
    Read("", "_create_all_weights", "of a legacy optimizer", _FIRST, _KERAS3),
    Read(
        "src.mixed_precision.autocast_variable:AutoCastVariable",
        "_variable",
        "the variable that is cast when it is read",
        _FIRST,
        _KERAS3,
    ),
    Read(
        "callbacks.ModelCheckpoint",
        "_save_model",
        "replaced on an object, so that it saves atomically",
        _FIRST,
        _NONE,
    ),
)


def patches_of(version: str) -> Iterator[Patch]:
    """Yields the patches that apply to a Keras.

    Args:
        version: its `__version__`.
    """
    yield from (each for each in PATCHES if _is_within(version, each.since, each.until))


def reads_of(version: str) -> Iterator[Read]:
    """Yields the private names that are read in a Keras."""
    yield from (each for each in READS if _is_within(version, each.since, each.until))


def find_owner(package: ModuleType, owner: str) -> Any:
    """Returns the module or class that `owner` names in a package.

    Raises:
        AttributeError, ImportError: there is no such module or class.
    """
    path, _, inner = owner.partition(":")
    if path.startswith("src."):
        found: Any = importlib.import_module(f"{package.__name__}.{path}")
        path = inner
    else:
        found = package
    for name in filter(None, path.split(".")):
        found = getattr(found, name)
    return found


def _is_within(version: str, since: str, until: str) -> bool:
    return number(since) <= number(version) < number(until)
