"""Accumulates gradients in optimizers of Keras 2, which cannot do that itself.

As in Keras 3, each worker adds up its own gradients, and all workers exchange their sums once for each update. Only a
LossScaleOptimizer exchanges the gradients of each batch. The optimizer counts batches.
"""

from __future__ import annotations

from typing import Callable, List, Sequence

import tensorflow as tf

from tf_strategies.keras.accumulation import has_several_replicas
from tf_strategies.keras.refusals import refuse_accumulation
from tf_strategies.keras.types import GradientsAndVariables, Keras2Optimizer
from tf_strategies.keras.worker_strategy import WorkerStrategy

__all__ = ["apply_or_accumulate"]


def apply_or_accumulate(
    optimizer: Keras2Optimizer,
    grads_and_vars: GradientsAndVariables,
    accumulated: Sequence[tf.Variable],
    batches: tf.Variable,
    apply: Callable[[GradientsAndVariables], object],
) -> tf.Variable:
    """Applies the means of the gradients of several batches, or keeps these gradients for a later batch.

    Args:
        optimizer: the optimizer, whose `iterations` counts batches.
        grads_and_vars: pairs of a gradient, which is not None, and its variable.
        accumulated: the sums of the batches before, in the same order.
        batches: the number of these batches, [] int64. A LossScaleOptimizer also counts batches that it skips, in `iterations`.
        apply: applies gradients, and counts.

    Returns:
        `optimizer.iterations`.

    Raises:
        OptionsError: variables are on servers.
        NotImplementedError: the worker has several replicas.
    """
    strategy = tf.distribute.get_strategy()
    refuse_accumulation(strategy, optimizer)
    is_other = not isinstance(strategy, WorkerStrategy)
    if has_several_replicas() or (is_other and strategy.num_replicas_in_sync > 1):
        raise NotImplementedError(
            "gradient_accumulation_steps needs one replica a worker with Keras 2; start one worker for each device "
            "(tfs-run --workers), or use Keras 3.10 or newer"
        )
    grads, variables = zip(*grads_and_vars)
    steps = optimizer.gradient_accumulation_steps

    def apply_means() -> None:
        means: List[tf.Tensor] = [
            (kept + tf.cast(tf.convert_to_tensor(grad), kept.dtype)) / steps
            for kept, grad in zip(accumulated, grads)
        ]
        apply(list(zip(means, variables)))
        for kept in accumulated:
            kept.assign(tf.zeros_like(kept))
        batches.assign(0)

    def keep() -> None:
        for kept, grad in zip(accumulated, grads):
            kept.assign_add(tf.cast(tf.convert_to_tensor(grad), kept.dtype))
        batches.assign_add(1)
        optimizer.iterations.assign_add(1)

    tf.cond(tf.equal(batches + 1, steps), apply_means, keep)
    return optimizer.iterations
