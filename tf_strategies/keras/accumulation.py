"""Makes Keras 3 accumulate gradients in workers with several replicas.

Keras decides in a `tf.cond` of each replica if it applies what has been accumulated. TensorFlow cannot switch between replicas
in there, so gradients cannot be added up. Here the replicas of a worker decide together. Each replica accumulates its own
gradients, and they are added up once for each update.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Callable, ContextManager, List, Sequence

import tensorflow as tf

from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.model_state import replicas_of
from tf_strategies.keras.types import Gradients, Keras3Optimizer, Variable
from tf_strategies.keras.versions import number
from tf_strategies.types import PerReplica, Result

__all__ = ["SINCE", "apply_together", "has_several_replicas", "is_possible"]

SINCE = "3.10"  # before, the method that is replaced also counts the steps


def apply_together(
    original: Callable[..., Result], keras: ModuleType, given_sums: Callable[[], ContextManager[None]]
) -> Callable[..., Result]:
    """Returns the method of optimizers that applies or accumulates gradients, in replicas that do so together.

    Args:
        original: the method.
        keras: the Keras that it belongs to.
        given_sums: opens a context in which the gradients that an optimizer gets are sums over replicas.
    """

    @functools.wraps(original)
    def apply_gradients(
        self: Keras3Optimizer, grads: Gradients, trainable_variables: Sequence[Variable]
    ) -> object:
        if not (self.gradient_accumulation_steps and has_several_replicas()):
            return original(self, grads, trainable_variables)
        accumulation = _Accumulation(self, list(trainable_variables), given_sums)
        tf.distribute.get_replica_context().merge_call(accumulation.take, args=(list(grads),))
        if self.use_ema:
            weights = self._trainable_variables
            self._update_model_variables_moving_average(weights)
            if self.ema_overwrite_frequency:
                keras.ops.cond(
                    (self.iterations + 1) % self.ema_overwrite_frequency == 0,
                    lambda: self._overwrite_model_variables_with_average_value(weights),
                    lambda: None,
                )
        return None

    return apply_gradients


def is_possible(keras: ModuleType) -> bool:
    """Returns True if replicas of this Keras can accumulate together."""
    return number(keras.__version__) >= number(SINCE)


def has_several_replicas() -> bool:
    """Returns True in a replica function of a worker that has other replicas, too."""
    context = tf.distribute.get_replica_context()
    strategy = None if context is None else context.strategy
    return isinstance(strategy, GroupStrategy) and len(strategy.extended.worker_devices) > 1


class _Accumulation:
    """Takes the gradients of one step.

    Args:
        optimizer: the optimizer.
        variables: the variables of the gradients.
        given_sums: as for `apply_together`.
    """

    def __init__(
        self,
        optimizer: Keras3Optimizer,
        variables: List[Variable],
        given_sums: Callable[[], ContextManager[None]],
    ) -> None:
        self._optimizer, self._variables, self._given_sums = optimizer, variables, given_sums
        kept = optimizer._accumulated_gradients
        self._kept = [kept[optimizer._get_variable_index(each)].value for each in variables]

    def take(self, strategy: GroupStrategy, grads: Sequence[PerReplica]) -> None:
        """Accumulates gradients, or applies them with those that were accumulated. All replicas call it together."""
        steps = self._optimizer.gradient_accumulation_steps
        is_last = tf.equal((self._optimizer._iterations.value + 1) % steps, 0)
        tf.cond(is_last, lambda: self._apply(strategy, grads), lambda: self._keep(strategy, grads))

    def _keep(self, strategy: GroupStrategy, grads: Sequence[PerReplica]) -> None:
        for kept, grad in zip(self._kept, grads):
            strategy.extended.update(
                kept, lambda part, new: part.assign_add(tf.convert_to_tensor(new)), (grad,), group=False
            )

    def _apply(self, strategy: GroupStrategy, grads: Sequence[PerReplica]) -> None:
        optimizer = self._optimizer
        means = [self._mean(strategy, kept, grad) for kept, grad in zip(self._kept, grads)]
        stored = [each if isinstance(each, tf.Variable) else each.value for each in self._variables]
        sums = strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, list(zip(means, stored)))
        if optimizer.clipnorm or optimizer.clipvalue or optimizer.global_clipnorm:
            sums = [strategy.experimental_local_results(total)[0] for total in sums]
        with self._given_sums(), strategy.extended.merging():
            optimizer._apply_weight_decay(self._variables)
            optimizer._backend_update_step(
                optimizer._clip_gradients(sums), self._variables, optimizer.learning_rate
            )
        for kept in optimizer._accumulated_gradients:
            strategy.extended.update(kept.value, lambda part: part.assign(tf.zeros_like(part)), group=False)

    def _mean(self, strategy: GroupStrategy, kept: tf.Variable, grad: PerReplica) -> PerReplica:
        parts = []
        for part, new in zip(replicas_of(kept), strategy.experimental_local_results(grad)):
            with tf.device(part.device):
                parts.append((tf.convert_to_tensor(new) + part) / self._optimizer.gradient_accumulation_steps)
        in_order = iter(parts)
        return strategy.experimental_distribute_values_from_function(lambda context: next(in_order))
