"""Ends `fit` with the step, not with the data: what a slow worker's batches were meant for, others have done."""

from __future__ import annotations

from typing import Any, Callable, Optional

from tf_strategies.keras.hooks import Hooks

__all__ = ["LastStep"]


class LastStep(Hooks):
    """Stops training when the servers have taken as many steps as this worker has batches, or a given number in all.

    Args:
        step: returns the number of steps so far.
        last: the number at which to stop; None: as many more, from when `fit` begins, as it has batches for.
    """

    def __init__(self, step: Callable[[], int], last: Optional[int] = None) -> None:
        super().__init__()
        self._step = step
        self._given = last
        self._last = last

    def on_train_begin(self, logs: Any = None) -> None:
        epochs, steps = self.params.get("epochs"), self.params.get("steps")
        if self._given is None:
            self._last = None if not epochs or not steps else self._step() + epochs * steps

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._last is not None and self._step() >= self._last:
            self.model.stop_training = True
