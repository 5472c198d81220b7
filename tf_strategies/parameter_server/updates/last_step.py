"""Ends `fit` at a step of all workers, even if a slow worker has batches left."""

from __future__ import annotations

from typing import Callable, Optional

from tf_strategies.keras.fit_types import Logs
from tf_strategies.keras.hooks import Hooks

__all__ = ["LastStep"]


class LastStep(Hooks):
    """Stops training when the servers have applied as many steps since the start of `fit` as this worker has batches.

    Args:
        step: returns the number of steps so far.
    """

    def __init__(self, step: Callable[[], int]) -> None:
        super().__init__()
        self._step = step
        self._last: Optional[int] = None

    def on_train_begin(self, logs: Optional[Logs] = None) -> None:
        epochs, steps = self.params.get("epochs"), self.params.get("steps")
        self._last = self._step() + epochs * steps if epochs and steps else None

    def on_train_batch_end(self, batch: int, logs: Optional[Logs] = None) -> None:
        if self._last is not None and self._step() >= self._last:
            self.model.stop_training = True
