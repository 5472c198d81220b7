"""`StopAtStep`: ends training when the workers together have made a number of steps."""

from __future__ import annotations

from typing import Optional

from tf_strategies.errors import OptionsError
from tf_strategies.keras import bridge
from tf_strategies.keras.fit_types import Logs
from tf_strategies.keras.hooks import Hooks
from tf_strategies.keras.running_fit import RunningFit, running_fit
from tf_strategies.options import whole_number

__all__ = ["StopAtStep"]


class StopAtStep(Hooks):
    """Ends `fit` on all workers when the global step reaches a number.

    The global step is the optimizer's `iterations`, which counts the updates by all workers since the model was made. It is
    checked after each batch; with `steps_per_execution`, after so many batches. A worker whose `fit` begins later trains no
    batch. Give the callback to every worker, and allow enough epochs: `fit(dataset.repeat(), steps_per_epoch=100,
    epochs=1000, callbacks=[StopAtStep(50_000)])`.

    In one process, with CollectiveAllReduceStrategy, and with SyncReplicasStrategy without backup workers, training ends with
    exactly this step. With backup workers one more step may be taken. Asynchronous workers finish the batch they are in, so N
    workers may take up to N - 1 more steps.

    Args:
        last_step: the step at which to stop, from 1.

    Raises:
        OptionsError: `last_step` is not a whole number of at least 1.

    Example:
        >>> stop = tfs.callbacks.StopAtStep(25)
        >>> history = model.fit(dataset.repeat(), steps_per_epoch=10, epochs=1000, verbose=0, callbacks=[stop])
        >>> int(model.optimizer.iterations.numpy())
        25
    """

    def __init__(self, last_step: int) -> None:
        super().__init__()
        number = whole_number(last_step)
        if number is None or number < 1:
            raise OptionsError(f"last_step must be a whole number from 1; got {last_step!r}")
        self._last_step = number
        self._ended: Optional[RunningFit] = None
        bridge.install()

    def on_train_begin(self, logs: Optional[Logs] = None) -> None:
        if not self._is_reached():
            return
        self.model.stop_training = True
        self._ended = running_fit(self.model)
        if self._ended is not None:
            self._ended.end_now()

    def on_train_batch_end(self, batch: int, logs: Optional[Logs] = None) -> None:
        if self._is_reached():
            self.model.stop_training = True

    def on_train_end(self, logs: Optional[Logs] = None) -> None:
        if self._ended is not None:
            self._ended.forget()
            self._ended = None

    def _is_reached(self) -> bool:
        return int(self.model.optimizer.iterations.numpy()) >= self._last_step  # type: ignore[union-attr]  # it trains
