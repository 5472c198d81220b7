"""Lets `fit` read its data again in the same order, in the same process."""

from __future__ import annotations

import random
from typing import Callable, List

import numpy as np
import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.keras.fit_types import Data

__all__ = ["Replay"]


class Replay:
    """Remembers the state of all that decides on the order of the data, when it is made.

    Args:
        data: the argument `x` of `fit`.
        validation: the argument `validation_data`.

    Attributes:
        obstacle: why the data cannot be read again in the same order, or "".
    """

    def __init__(self, data: Data, validation: Data = None) -> None:
        self.obstacle = _obstacle(data)
        self._rewinds: List[Callable[[], None]] = []
        if _obstacle(validation):
            self.obstacle = self.obstacle or f"validation_data: {_obstacle(validation)}"
        if isinstance(data, tf.data.Dataset) and not self.obstacle:
            self._add_dataset(data)
        state, numpy_state = random.getstate(), np.random.get_state()
        self._rewinds += [
            compat.eager_random_state(),
            lambda: random.setstate(state),
            lambda: np.random.set_state(numpy_state),
        ]

    def rewind(self) -> None:
        """Sets everything back to that state."""
        for each in self._rewinds:
            each()

    def _add_dataset(self, dataset: tf.data.Dataset) -> None:
        try:
            self._rewinds.append(compat.rewinding(dataset))
        except tf.errors.OpError as error:
            self.obstacle = f"the dataset has a state that cannot be saved ({error.message.splitlines()[0]})"


def _obstacle(data: Data) -> str:
    if isinstance(data, tf.data.Dataset):
        generates = "GeneratorDataset" in compat.operations_of_functions(data)
        return (
            "its from_generator may keep a state of its own; read it from files or arrays"
            if generates
            else ""
        )
    if isinstance(data, tf.distribute.DistributedDataset):
        return "it is already split between the workers that began; pass the dataset itself"
    kind = type(data).__name__
    if hasattr(data, "__next__"):
        return f"a {kind} can be read only once; pass arrays or a tf.data.Dataset"
    is_sequence = hasattr(data, "__getitem__") and hasattr(data, "on_epoch_end")
    if is_sequence or type(data).__module__.startswith("torch."):
        return f"a {kind} may keep a state of its own; pass arrays or a tf.data.Dataset"
    return ""
