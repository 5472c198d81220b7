"""Runs a replica function on this worker's devices."""

from __future__ import annotations

import weakref
from typing import Any, Callable, ContextManager, Optional, Sequence

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.types import Kwargs, Structure

__all__ = ["LiftedFunctions", "after_arrival", "run_on_only_device"]


def after_arrival(arguments: Structure) -> ContextManager[None]:
    """Opens a context whose operations run after these arguments have been computed.

    They do not run if an argument fails.

    In a graph, operations that do not need the data could run before the data arrive. A step that finds no
    data must not change anything, such as the count of steps, because other workers may have ended earlier.
    """
    tensors = tf.nest.flatten(arguments, expand_composites=True)
    return tf.control_dependencies(
        [tensor for tensor in tensors if isinstance(tensor, tf.Tensor) and not hasattr(tensor, "numpy")]
    )


def run_on_only_device(
    strategy: tf.distribute.Strategy,
    device: str,
    fn: Callable[..., Structure],
    args: Sequence[Structure],
    kwargs: Kwargs,
    *,
    replica: int,
) -> Structure:
    """Runs `fn` as this worker's only replica, on this thread. `replica` is its number among all replicas.

    TensorFlow runs each replica on its own thread, and `merge_call` switches between these threads. So it
    works only at the top level of `fn`. One replica needs no switch: gradients may be added up inside
    conditions, loops and functions.
    """
    args, kwargs = compat.select_replica(0, args), compat.select_replica(0, kwargs)
    with _OnlyReplica(strategy, replica_id_in_sync_group=replica), tf.device(device):
        result = fn(*args, **kwargs)
    return compat.regroup((result,))


class _OnlyReplica(tf.distribute.ReplicaContext):
    def __init__(self, strategy: tf.distribute.Strategy, replica_id_in_sync_group: int) -> None:
        super().__init__(strategy, replica_id_in_sync_group)
        self._eager = tf.executing_eagerly()

    @property
    def replica_id_in_sync_group(self) -> tf.Tensor:
        # Asked for here, so that a function that is traced is known to hold the number.
        return tf.constant(self._strategy.extended._get_replica_id_in_sync_group(0))

    def _merge_call(
        self, merge_fn: Callable[..., Structure], args: Sequence[Structure], kwargs: Kwargs
    ) -> Structure:
        if self._eager and not tf.executing_eagerly():
            raise NotImplementedError(
                "a replica applies gradients or reduces values inside a tf.function, but strategy.run is "
                "called eagerly; call strategy.run in a tf.function, or pass the tf.function to strategy.run"
            )
        return compat.select_replica(0, super()._merge_call(merge_fn, args, kwargs))


class LiftedFunctions:
    """Keeps one function around all replicas for each `tf.function` that was passed to `Strategy.run`.

    Replicas cannot exchange values inside a function that each of them traces on its own.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._strategy = weakref.ref(strategy)
        self._lifted: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()

    def get(self, fn: Callable[..., Structure]) -> Optional[Callable[..., Structure]]:
        """Returns the `tf.function` that runs the body of `fn` on every replica; None if `fn` is no `tf.function`."""
        if not isinstance(fn, compat.Function):
            return None
        if fn not in self._lifted:
            body, strategy = fn.python_function, self._strategy

            def on_all_replicas(*args: Any, **kwargs: Any) -> Structure:
                return strategy().extended.call_for_each_replica(body, args, kwargs)

            self._lifted[fn] = fn._clone(python_function=on_all_replicas)
        return self._lifted[fn]
