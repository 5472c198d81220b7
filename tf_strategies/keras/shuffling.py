"""Makes Keras shuffle alike on all workers, since each keeps its share of every batch of one order.

Arrays are shuffled by tf.random.shuffle in a dataset that is made when the loop starts; the batches of a `PyDataset` or
`Sequence` by Python's `random`, epoch by epoch.
"""

from __future__ import annotations

import contextlib
import random
from types import ModuleType
from typing import Any, Iterator

from tf_strategies.keras.worker_strategy import WorkerStrategy

__all__ = ["one_order", "shared_random"]


def shared_random(original: ModuleType, keras: ModuleType) -> Any:
    """Returns what a module of Keras has in place of Python's `random`: it shuffles in the order agreed on."""
    del original, keras
    return _shared


@contextlib.contextmanager
def one_order(strategy: Any, shuffle: Any) -> Iterator[None]:
    """Opens a context in which data for models of this strategy are shuffled alike on all workers. A collective.

    Args:
        strategy: the model's.
        shuffle: what was given to `fit`; nothing happens where it is false.
    """
    if not shuffle:
        yield
        return
    if not isinstance(strategy, WorkerStrategy) or strategy.size == 1:
        _shared.order = None
        yield
        return
    with strategy.one_op_seed() as seed:
        _shared.order = random.Random(seed)
        yield


class _SharedRandom:
    """Python's `random`, but that `shuffle` follows `order` where there is one."""

    order: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(random, name)

    def shuffle(self, values: Any) -> None:
        (self.order or random).shuffle(values)


_shared = _SharedRandom()
