"""Lists the patches of variables: their owner, their place, and random states."""

from __future__ import annotations

from typing import Tuple

from tf_strategies.keras import autocast, embedding, ownership, seeds, server_variables, shuffling
from tf_strategies.keras.patches.patch import KERAS3, Patch

__all__ = ["VARIABLES"]

_OPTIMIZER2 = "src.optimizers.legacy.optimizer_v2:OptimizerV2"
_SCALED2 = "src.mixed_precision.loss_scale_optimizer"
_CAST2 = "src.mixed_precision.autocast_variable:AutoCastVariable"

VARIABLES: Tuple[Patch, ...] = (
    # The owner of a variable, and its place.
    Patch(
        "optimizers.Optimizer", "__init__", ownership.init_optimizer, "records the variables of optimizers"
    ),
    Patch(
        _OPTIMIZER2,
        "__init__",
        ownership.init_optimizer,
        "records the variables of optimizers",
        until=KERAS3,
    ),
    Patch(
        f"{_SCALED2}:LossScaleOptimizer",
        "__init__",
        ownership.init_optimizer,
        "records loss scales",
        until=KERAS3,
    ),
    Patch(
        f"{_SCALED2}:LossScaleOptimizerV3",
        "__init__",
        ownership.init_optimizer,
        "records loss scales",
        until=KERAS3,
    ),
    Patch(
        "layers.RNN",
        "_create_state_variables",
        ownership.mark_states,
        "records that states belong to the rows of a replica",
        KERAS3,
    ),
    Patch(
        "Variable",
        "assign_add",
        server_variables.assign_add,
        "adds on the servers, so that no count is lost",
        KERAS3,
    ),
    Patch(
        "Variable",
        "assign_sub",
        server_variables.assign_sub,
        "subtracts on the servers, so that no count is lost",
        KERAS3,
    ),
    # Reads.
    Patch("layers.Embedding", "call", embedding.call, "looks up rows in place", KERAS3),
    Patch(
        "layers.Embedding",
        "call",
        embedding.call_keras2,
        "looks up rows that servers cast",
        until=KERAS3,
    ),
    Patch("Variable", "_maybe_autocast", autocast.cast, "casts on the servers", KERAS3),
    Patch(_CAST2, "value", autocast.read, "casts on the servers", until=KERAS3),
    Patch(_CAST2, "read_value", autocast.read, "casts on the servers", until=KERAS3),
    Patch(_CAST2, "_dense_var_to_tensor", autocast.as_tensor, "casts on the servers", until=KERAS3),
    Patch(
        "src.engine.base_layer:Layer",
        "_handle_weight_regularization",
        autocast.add_regularizer,
        "casts weights that a loss reads on the worker",
        until=KERAS3,
    ),
    # Random numbers.
    Patch(
        "random.SeedGenerator", "next", seeds.next_seed, "makes each replica draw different numbers", KERAS3
    ),
    Patch(
        "src.backend:RandomGenerator",
        "make_legacy_seed",
        seeds.seed_of_worker,
        "makes each worker draw different numbers",
        until=KERAS3,
    ),
    Patch(
        "src.trainers.data_adapters.py_dataset_adapter",
        "random",
        shuffling.shared_random,
        "one order",
        KERAS3,
    ),
    Patch(
        "src.engine.data_adapter",
        "random",
        shuffling.shared_random,
        "shuffles a Sequence in the same order on all workers",
        until=KERAS3,
    ),
    Patch(
        "src.utils.data_utils",
        "random",
        shuffling.shared_random,
        "shuffles a Sequence in the same order on all workers",
        until=KERAS3,
    ),
)
