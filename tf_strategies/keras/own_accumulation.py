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
from tf_strategies.types import TensorOrSlices

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
        NotImplementedError: a strategy of TensorFlow has several replicas.
    """
    strategy = tf.distribute.get_strategy()
    refuse_accumulation(strategy, optimizer)
    if not isinstance(strategy, WorkerStrategy) and strategy.num_replicas_in_sync > 1:
        raise NotImplementedError(
            "gradient_accumulation_steps needs one replica, or a strategy of tf_strategies; use "
            "tfs.CollectiveAllReduceStrategy"
        )
    grads, variables = zip(*grads_and_vars)
    steps = optimizer.gradient_accumulation_steps

    def apply_means(*grads: TensorOrSlices) -> None:
        means: List[tf.Tensor] = [
            (kept + tf.cast(tf.convert_to_tensor(grad), kept.dtype)) / steps
            for kept, grad in zip(accumulated, grads)
        ]
        apply(list(zip(means, variables)))
        for kept in accumulated:
            kept.assign(tf.zeros_like(kept))
        batches.assign(0)

    def keep(*grads: TensorOrSlices) -> None:
        for kept, grad in zip(accumulated, grads):
            kept.assign_add(tf.cast(tf.convert_to_tensor(grad), kept.dtype))
        batches.assign_add(1)
        optimizer.iterations.assign_add(1)

    def decide(call: Callable[..., object], grads: Sequence[TensorOrSlices]) -> None:
        is_last = tf.equal(batches + 1, steps)
        tf.cond(is_last, lambda: call(apply_means, grads), lambda: call(keep, grads))

    if has_several_replicas():
        # They decide together: TensorFlow cannot switch between replicas in a `tf.cond` of each.
        tf.distribute.get_replica_context().merge_call(
            lambda merged, grads: decide(merged.extended.call_for_each_replica, grads), args=(grads,)
        )
    else:
        decide(lambda function, grads: function(*grads), grads)
    return optimizer.iterations
