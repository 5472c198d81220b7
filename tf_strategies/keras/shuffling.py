"""Makes Keras shuffle in the same order on all workers, because each keeps its share of every batch.

Keras shuffles arrays by tf.random.shuffle, in a dataset that it makes when the loop starts. It shuffles the
batches of a `PyDataset` or `Sequence` by Python's `random`, in each epoch.
"""

from __future__ import annotations

import contextlib
import random
from types import ModuleType
from typing import Any, Iterator, MutableSequence, Optional

from tf_strategies.keras.worker_strategy import WorkerStrategy
from tf_strategies.types import Structure

__all__ = ["one_order", "shared_random"]


def shared_random(original: ModuleType, keras: ModuleType) -> _SharedRandom:
    """Returns a replacement for Python's `random` in a module of Keras. It shuffles in the agreed order."""
    del original, keras
    return _shared


@contextlib.contextmanager
def one_order(strategy: object, shuffle: object) -> Iterator[None]:
    """Opens a context in which data for models of this strategy are shuffled in the same order on all workers.

    A collective.

    Args:
        strategy: the strategy of the model.
        shuffle: the argument of `fit`. If it is false, nothing happens.
    """
    if not shuffle:
        yield
        return
    if not isinstance(strategy, WorkerStrategy) or not strategy.may_have_others:
        _shared.order = None
        yield
        return
    with strategy.one_op_seed() as seed:
        _shared.order = random.Random(seed)
        yield


class _SharedRandom:
    """Python's `random`, except that `shuffle` follows `order` if it is set."""

    order: Optional[random.Random] = None

    def __getattr__(self, name: str) -> Any:
        return getattr(random, name)

    def shuffle(self, values: MutableSequence[Structure]) -> None:
        (self.order or random).shuffle(values)


_shared = _SharedRandom()
