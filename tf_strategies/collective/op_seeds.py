"""Makes random operations draw different numbers on every worker, although all workers have the same global seed."""

from __future__ import annotations

import contextlib
from typing import Iterator

from tf_strategies._tf import compat
from tf_strategies.keras.seeds import SEEDS, spread

__all__ = ["op_seeds_of_worker"]


@contextlib.contextmanager
def op_seeds_of_worker(rank: int) -> Iterator[None]:
    """Opens a context in which operations such as tf.random.normal are seeded by the global seed and the worker's rank.

    Local replicas differ anyway, because each operation has its own number. Without a global seed, nothing
    changes.
    """
    before = compat.op_seed()
    if before is None or rank == 0:
        yield
        return
    compat.set_op_seed((before + spread(rank)) % SEEDS)
    try:
        yield
    finally:
        compat.set_op_seed(before)
