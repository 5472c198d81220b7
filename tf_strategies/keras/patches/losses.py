"""Lists the patches of losses."""

from __future__ import annotations

from typing import Tuple

from tf_strategies.keras import joint_losses
from tf_strategies.keras.patches.patch import KERAS3, Patch

__all__ = ["LOSSES"]

LOSSES: Tuple[Patch, ...] = (
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
        KERAS3,
    ),
    Patch(
        "src.engine.compile_utils:LossesContainer",
        "__call__",
        joint_losses.call_compiled,
        "marks compiled losses",
        until=KERAS3,
    ),
    Patch(
        "src.losses.loss",
        "reduce_weighted_values",
        joint_losses.reduce_keras3,
        "divides means by the valid rows of all replicas",
        KERAS3,
    ),
    Patch(
        "src.utils.losses_utils",
        "apply_valid_mask",
        joint_losses.apply_valid_mask_keras2,
        "divides means by the valid rows of all replicas",
        until=KERAS3,
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
        until=KERAS3,
    ),
)
