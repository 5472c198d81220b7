"""Makes dropout and other random layers draw different numbers on every replica, although all workers have the same seed.

Only the drawn numbers differ. The saved states of the generators advance equally on all workers, so a
checkpoint of the chief restores all of them.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Callable, Optional

import tensorflow as tf

from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.worker_strategy import WorkerStrategy

__all__ = ["SEEDS", "next_seed", "seed_of_worker", "spread"]

_STRIDE = 0x9E3779B1  # 2^32 divided by the golden ratio; its multiples are far apart
SEEDS = 2**31 - 2  # the number of different seeds in Keras 3


def next_seed(original: Callable[..., tf.Tensor], keras: ModuleType) -> Callable[..., tf.Tensor]:
    """Returns `SeedGenerator.next` of Keras 3, changed so that seeds differ between replicas."""
    del keras

    @functools.wraps(original)
    def next_of_replica(self: object, ordered: bool = True) -> tf.Tensor:
        seed = original(self, ordered)
        replica = _replica()
        if not replica:
            return seed
        return seed + tf.constant([spread(replica), 0], seed.dtype)

    return next_of_replica


def seed_of_worker(original: Callable[..., Optional[int]], keras: ModuleType) -> Callable[..., Optional[int]]:
    """Returns `RandomGenerator.make_legacy_seed` of Keras 2, changed so that seeds differ between workers."""
    del keras

    @functools.wraps(original)
    def make_legacy_seed(self: object) -> Optional[int]:
        seed = original(self)
        return seed if seed is None else (seed + spread(_replica())) % SEEDS

    return make_legacy_seed


def _replica() -> int:
    """Returns the number of the running replica among all replicas; 0 outside of replica functions."""
    context = tf.distribute.get_replica_context()
    if context is None or not isinstance(context.strategy, WorkerStrategy):
        return 0
    if not isinstance(context.strategy, GroupStrategy):
        return context.strategy.rank
    return context.strategy.replica_now()


def spread(replica: int) -> int:
    """Returns the number that is added to the seed on a replica, in [0, 2^31 - 2). It is 0 for replica 0."""
    return replica * _STRIDE % SEEDS
