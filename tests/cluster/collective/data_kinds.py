"""The Keras in use, and kinds of data that only Keras reads."""

from __future__ import annotations

from typing import Any, Iterator, List

import numpy as np
from tensorflow import keras

__all__ = ["as_generator", "as_sequence", "keras"]

_Sequence = getattr(keras.utils, "PyDataset", keras.utils.Sequence)


class _Batches(_Sequence):
    """A `PyDataset`, which Keras 2 calls `Sequence`."""

    def __init__(self, batches: List[tuple]) -> None:
        super().__init__()
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> tuple:
        return _fresh(self._batches[index])


def as_sequence(batches: List[tuple]) -> Any:
    return _Batches(batches)


def as_generator(batches: List[tuple]) -> Iterator[tuple]:
    yield from map(_fresh, batches)


def _fresh(batch: tuple) -> tuple:
    """A copy: TensorFlow takes over the memory of arrays that generators yield, and may compute in it."""
    return tuple(np.copy(part) for part in batch)
