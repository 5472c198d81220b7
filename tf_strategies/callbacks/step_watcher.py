"""The common base of callbacks that report the figures of steps."""

from __future__ import annotations

from typing import Optional

from tf_strategies import arguments
from tf_strategies.callbacks.step_figures import MeasuredStrategy, StepFigures, StepMeter
from tf_strategies.errors import OptionsError
from tf_strategies.keras.fit_types import Logs
from tf_strategies.keras.hooks import Hooks

__all__ = ["StepWatcher"]


class StepWatcher(Hooks):
    """Measures the steps of `fit` and reports them.

    The first step of each `fit` does not count, because TensorFlow builds its graph then.

    Args:
        interval: the shortest time between two reports, in seconds of training.
    """

    def __init__(self, interval: float) -> None:
        super().__init__()
        self._interval = arguments.positive("interval", interval)
        self._step = 0
        self._batches = 0
        self._meter: Optional[StepMeter] = None
        self._began = False

    def begin(self, strategy: MeasuredStrategy) -> None:
        """Prepares to report. It is called when `fit` begins."""
        raise NotImplementedError

    def report(self, step: int, figures: StepFigures) -> None:
        """Reports the figures of steps.

        Args:
            step: the number of the last one, from 1, since the model was made.
            figures: their figures.
        """
        raise NotImplementedError

    def end(self) -> None:
        """Ends the reports. It is called when `fit` ends."""
        raise NotImplementedError

    def on_train_begin(self, logs: Optional[Logs] = None) -> None:
        strategy = self.model.distribute_strategy
        if not hasattr(strategy, "recorded_collectives"):
            raise OptionsError(
                f"{type(self).__name__} needs a model made in the scope of a CollectiveAllReduceStrategy, which records its "
                f"collectives; this one has {strategy}"
            )
        self._meter = StepMeter(strategy)
        self._began = False
        self.begin(strategy)

    def on_epoch_begin(self, epoch: int, logs: Optional[Logs] = None) -> None:
        self._batches = 0
        if self._meter is not None and self._began:
            self._meter.resume()

    def on_train_batch_end(self, batch: int, logs: Optional[Logs] = None) -> None:
        steps, self._batches = batch + 1 - self._batches, batch + 1
        if self._meter is None:
            return
        if self._began:
            self._step += steps
            self._meter.step_ended(steps)
            if self._meter.seconds >= self._interval:
                self._take()
        else:
            self._began = True
            self._step = max(self._step + steps, self._iterations())
            self._meter.resume()
        if self._batches == self.params.get("steps"):
            self._meter.pause()

    def on_test_begin(self, logs: Optional[Logs] = None) -> None:
        self._pause()

    def on_epoch_end(self, epoch: int, logs: Optional[Logs] = None) -> None:
        self._pause()

    def on_train_end(self, logs: Optional[Logs] = None) -> None:
        self._pause()
        self._take()
        self._meter = None
        self.end()

    def _pause(self) -> None:
        if self._meter is not None:
            self._meter.pause()

    def _take(self) -> None:
        figures = None if self._meter is None else self._meter.take()
        if figures is not None:
            self.report(self._step, figures)

    def _iterations(self) -> int:
        """Returns the steps that the optimizer has counted; 0 if there is none, as with a `train_step` with several."""
        iterations = getattr(self.model.optimizer, "iterations", None)
        return 0 if iterations is None else int(iterations.numpy())
