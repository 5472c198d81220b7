"""Lists the private names that are read or set on objects of Keras."""

from __future__ import annotations

from typing import Tuple

from tf_strategies.keras.accumulation import SINCE
from tf_strategies.keras.patches.patch import FIRST, KERAS3, NONE, Read

__all__ = ["READS"]

_HANDLER = "src.engine.data_adapter:DataHandler"
_CAST2 = "src.mixed_precision.autocast_variable:AutoCastVariable"
_ITERATOR = "src.backend.tensorflow.trainer:TFEpochIterator"

READS: Tuple[Read, ...] = (
    Read("", "_flatten_layers", "all layers of a model, inner ones too", FIRST, NONE),
    Read("", "_value", "TensorFlow's variable of a Keras variable", KERAS3, NONE),
    Read(_ITERATOR, "_distributed_dataset", "the iterator of a fit", KERAS3, NONE),
    Read(
        _ITERATOR,
        "_current_iterator",
        "whether an epoch continues with the iterator of the last one",
        KERAS3,
        NONE,
    ),
    Read(_ITERATOR, "_enumerate_iterator", "to start in the middle of an epoch", "3.7", NONE),
    Read(_ITERATOR, "_num_batches", "the steps of an epoch", KERAS3, NONE),
    Read(_ITERATOR, "_steps_seen", "the position in the data at which an epoch starts", KERAS3, NONE),
    Read(_ITERATOR, "_distribute_strategy", "the model that the data are for", KERAS3, NONE),
    Read("Model", "_distribute_strategy", "whether a model was made in a scope", KERAS3, NONE),
    Read("Model", "_initial_epoch", "to begin at a later epoch", KERAS3, NONE),
    Read("Model", "_eval_epoch_iterator", "validation data that other workers have split", KERAS3, NONE),
    Read("Model", "_eval_data_handler", "validation data that other workers have split", FIRST, KERAS3),
    Read("layers.Embedding", "_embeddings", "the table without LoRA", KERAS3, NONE),
    Read(
        "optimizers.Optimizer",
        "_trainable_variables",
        "the variables of gradients that come without",
        KERAS3,
        NONE,
    ),
    Read(
        "optimizers.Optimizer",
        "_accumulated_gradients",
        "what each replica keeps of its gradients",
        KERAS3,
        NONE,
    ),
    Read("optimizers.Optimizer", "_apply_weight_decay", "to apply accumulated gradients", SINCE, NONE),
    Read("optimizers.Optimizer", "_backend_update_step", "to apply accumulated gradients", SINCE, NONE),
    Read("optimizers.Optimizer", "_iterations", "the steps of the optimizer", SINCE, NONE),
    Read("optimizers.Optimizer", "_model_variables_moving_average", "the averages of weights", KERAS3, NONE),
    Read("optimizers.Optimizer", "_get_variable_index", "the slots of a variable", KERAS3, NONE),
    Read("optimizers.Optimizer", "_index_dict", "the slots of a variable", FIRST, KERAS3),
    Read("optimizers.Optimizer", "_deduplicate_sparse_grad", "to add up rows as Keras does", FIRST, KERAS3),
    Read("optimizers.Optimizer", "_var_key", "the slots of a variable", FIRST, KERAS3),
    Read("optimizers.Optimizer", "_build_learning_rate", "as each optimizer does", FIRST, KERAS3),
    Read("optimizers.Optimizer", "_serialize_hyperparameter", "as each optimizer does", FIRST, KERAS3),
    Read("optimizers.Optimizer", "_use_weight_decay", "whether a bias is decayed", FIRST, NONE),
    Read("Model", "_compile_config", "the losses and weights that were given", FIRST, NONE),
    Read("Model", "_is_graph_network", "whether a model has a graph", FIRST, KERAS3),
    Read("", "_inbound_nodes", "the graph of a functional model", FIRST, NONE),
    Read("", "_keras_history", "the graph of a functional model", FIRST, NONE),
    Read(_HANDLER, "_adapter", "the number of batches, and whether an iterator is kept", FIRST, KERAS3),
    Read(_HANDLER, "_dataset", "the iterator of a fit", FIRST, KERAS3),
    Read(_HANDLER, "_infer_steps", "the steps of an epoch", FIRST, KERAS3),
    Read(_HANDLER, "_inferred_steps", "the steps of an epoch", FIRST, KERAS3),
    Read(_HANDLER, "_initial_epoch", "which epoch it is", FIRST, KERAS3),
    Read(_HANDLER, "_steps_per_epoch", "whether the user gave it", FIRST, KERAS3),
    Read(_HANDLER, "_validate_data_handler", "as Keras does after it", FIRST, KERAS3),
    Read("src.engine.data_adapter", "_make_class_weight_map_fn", "class weights of a dataset", FIRST, KERAS3),
    Read("Model", "_training_state", "to begin at a later epoch", FIRST, KERAS3),
    Read("Model", "_train_counter", "the count of steps", FIRST, KERAS3),
    Read("Model", "_is_compiled", "whether compile was called", FIRST, KERAS3),
    Read("", "_random_generator", "the random states of layers", FIRST, KERAS3),
    Read("", "_generator", "the random states of layers", FIRST, KERAS3),
    Read("", "_loss_scale", "the variables of a dynamic loss scale", FIRST, KERAS3),
    Read("", "_u_product_counter", "whether Nadam counts in Python", FIRST, KERAS3),
    Read("", "_built", "of a legacy optimizer", FIRST, KERAS3),
    Read("", "_create_all_weights", "of a legacy optimizer", FIRST, KERAS3),
    Read("Variable", "_autocast", "whether a layer casts the variable", KERAS3, NONE),
    Read("layers.Embedding", "_use_one_hot_matmul", "whether rows are looked up", FIRST, KERAS3),
    Read(_CAST2, "_should_cast", "whether a layer casts the variable", FIRST, KERAS3),
    Read(_CAST2, "_cast_dtype", "the type in which a layer computes", FIRST, KERAS3),
    Read(
        _CAST2,
        "_variable",
        "the variable that is cast when it is read",
        FIRST,
        KERAS3,
    ),
    Read(
        "callbacks.ModelCheckpoint",
        "_save_model",
        "replaced on an object, so that it saves atomically",
        FIRST,
        NONE,
    ),
)
