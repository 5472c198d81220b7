"""Lists the patches of gradients: of optimizers, and of `tf.GradientTape`."""

from __future__ import annotations

from typing import Tuple

from tf_strategies.keras import accumulation, joint_gradients, loss_scale, rate_scale, summed_gradients
from tf_strategies.keras.patches.patch import KERAS3, Patch

__all__ = ["GRADIENTS", "OF_TENSORFLOW"]

_SCALED2 = "src.mixed_precision.loss_scale_optimizer"

GRADIENTS: Tuple[Patch, ...] = (
    # Gradients, outside of the steps of `fit`. Keras 2 adds them up before it clips or looks for Inf.
    Patch(
        "optimizers.Optimizer",
        "apply",
        summed_gradients.apply,
        "names gradients by their variables, and refuses unsupported options",
        KERAS3,
    ),
    Patch(
        "optimizers.Optimizer",
        "learning_rate",
        rate_scale.learning_rate,
        "follows the global batch, if that follows the number of workers",
    ),
    Patch(
        "optimizers.legacy.Optimizer",
        "apply_gradients",
        rate_scale.apply_legacy,
        "tells when it updates, for the learning rate",
        until=KERAS3,
    ),
    Patch(
        "optimizers.legacy.Optimizer",
        "_get_hyper",
        rate_scale.hyperparameter_legacy,
        "follows the global batch, if that follows the number of workers",
        until=KERAS3,
    ),
    Patch(
        "optimizers.Optimizer",
        "apply_gradients",
        summed_gradients.apply_gradients,
        "refuses gradients that are kept on servers",
        until=KERAS3,
    ),
    Patch(
        "optimizers.Optimizer",
        "_backend_apply_gradients",
        summed_gradients.apply_accumulated,
        "lets the replicas of a worker accumulate gradients",
        accumulation.SINCE,
    ),
    Patch(
        "optimizers.Optimizer",
        "_clip_gradients",
        summed_gradients.clip_gradients,
        "clips the sums over replicas",
        KERAS3,
    ),
    Patch(
        "optimizers.Optimizer",
        "_all_reduce_sum_gradients",
        summed_gradients.all_reduce_sum_gradients,
        "does not add up gradients twice",
        KERAS3,
    ),
    Patch(
        "optimizers.Optimizer",
        "_overwrite_model_variables_with_average_value",
        summed_gradients.overwrite_with_average,
        "updates each replica from within itself",
        KERAS3,
    ),
    Patch(
        "optimizers.Optimizer",
        "_update_step",
        summed_gradients.update_with_rows,
        "adds up the rows of several workers",
        until=KERAS3,
    ),
    Patch(
        "optimizers.Optimizer",
        "_update_model_variables_moving_average",
        summed_gradients.update_averages,
        "averages weights that servers have updated",
        KERAS3,
    ),
    Patch(
        "optimizers.LossScaleOptimizer",
        "scale_loss",
        loss_scale.scale_loss,
        "reads the scale with the weights on servers",
        KERAS3,
    ),
    Patch(
        f"{_SCALED2}:LossScaleOptimizer",
        "get_scaled_loss",
        loss_scale.scale_loss,
        "reads the scale with the weights on servers",
        until=KERAS3,
    ),
    Patch(
        f"{_SCALED2}:LossScaleOptimizerV3",
        "get_scaled_loss",
        loss_scale.scale_loss,
        "reads the scale with the weights on servers",
        until=KERAS3,
    ),
    Patch(
        f"{_SCALED2}:LossScaleOptimizer",
        "apply_gradients",
        loss_scale.apply_gradients_keras2,
        "decides for all workers of servers if a step is applied",
        until=KERAS3,
    ),
    Patch(
        f"{_SCALED2}:LossScaleOptimizerV3",
        "apply_gradients",
        loss_scale.apply_gradients_keras2,
        "decides for all workers of servers if a step is applied",
        until=KERAS3,
    ),
    Patch(
        _SCALED2,
        "strategy_supports_loss_scaling",
        loss_scale.supports_loss_scaling,
        "accepts parameter servers",
        until=KERAS3,
    ),
    Patch(
        "optimizers.LossScaleOptimizer",
        "_tf_apply",
        summed_gradients.apply_scaled,
        "checks the sums over replicas for Inf, or the gradients of all workers of servers",
        KERAS3,
    ),
    Patch(
        "optimizers.LossScaleOptimizer",
        "_stateful_handle_finite_grads",
        summed_gradients.handle_finite_grads,
        "does not add up gradients twice",
        KERAS3,
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
