"""Dropout and other random layers draw differently on every replica, though all workers have the same seed.

Only what is drawn differs: the state of the generators, which is saved, advances alike on all workers, so a
checkpoint of the chief restores all of them.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable, Optional

import tensorflow as tf

from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.worker_strategy import WorkerStrategy

__all__ = ["SEEDS", "next_seed", "seed_of_worker", "spread"]

_STRIDE = 0x9E3779B1  # 2^32 over the golden ratio: its multiples are far apart
SEEDS = 2**31 - 2  # how many seeds Keras 3 tells apart


def next_seed(original: Callable, keras: ModuleType) -> Callable:
    """Returns `SeedGenerator.next` of Keras 3, whose seeds differ between replicas."""
    del keras

    @functools.wraps(original)
    def next_of_replica(self: Any, ordered: bool = True) -> tf.Tensor:
        seed = original(self, ordered)
        replica = _replica()
        if not replica:
            return seed
        return seed + tf.constant([spread(replica), 0], seed.dtype)

    return next_of_replica


def seed_of_worker(original: Callable, keras: ModuleType) -> Callable:
    """Returns `RandomGenerator.make_legacy_seed` of Keras 2, whose seeds differ between workers."""
    del keras

    @functools.wraps(original)
    def make_legacy_seed(self: Any) -> Optional[int]:
        seed = original(self)
        return seed if seed is None else (seed + spread(_replica())) % SEEDS

    return make_legacy_seed


def _replica() -> int:
    """Returns the number among all replicas of the one that runs; 0 outside of replica functions."""
    context = tf.distribute.get_replica_context()
    if context is None or not isinstance(context.strategy, WorkerStrategy):
        return 0
    if not isinstance(context.strategy, GroupStrategy):
        return context.strategy.rank
    return int(tf.get_static_value(context.replica_id_in_sync_group))


def spread(replica: int) -> int:
    """Returns what is added to the seed on a replica, in [0, 2^31 - 2); 0 for 0."""
    return replica * _STRIDE % SEEDS
