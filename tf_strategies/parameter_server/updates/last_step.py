"""Ends `fit` with the step, not with the data: what a slow worker's batches were meant for, others have done."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from tf_strategies.keras.hooks import Hooks

__all__ = ["LastStep"]


class LastStep(Hooks):
    """Stops training when the servers have taken as many steps, from when `fit` began, as this worker has batches for.

    Args:
        step: returns the number of steps so far.
    """

    def __init__(self, step: Callable[[], int]) -> None:
        super().__init__()
        self._step = step
        self._last: Optional[int] = None

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        epochs, steps = self.params.get("epochs"), self.params.get("steps")
        self._last = self._step() + epochs * steps if epochs and steps else None

    def on_train_batch_end(self, batch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._last is not None and self._step() >= self._last:
            self.model.stop_training = True
