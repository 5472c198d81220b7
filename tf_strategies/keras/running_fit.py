"""The `fit` that runs: where it is in its data, and how to start it elsewhere.

Keras hands callbacks neither, and starts an epoch in its middle in Keras 2 only. So the bridge notes the objects that `fit`
makes first: what goes through its data, and its list of callbacks. Its dataset is put behind a `ReplayedDataset`, which counts
the iterators that the loop makes. To go on at a place is to make as many iterators as were made there, so that datasets that
shuffle anew for each give the same order, and to take the same number of batches from the last.
"""

from __future__ import annotations

import abc
import contextlib
import threading
from typing import Any, Dict, Iterator, List, Optional

from tf_strategies.keras.replayed_dataset import ReplayedDataset

__all__ = ["RunningFit", "fit_runs", "note_callbacks", "note_loop", "running_fit"]

_this_thread = threading.local()


class RunningFit(abc.ABC):
    """Defines what a running `fit` has in Keras 2 and in Keras 3.

    Attributes:
        callbacks: the list that `fit` calls; what it holds can be changed.
    """

    def __init__(self, parts: _Parts, adapter: Any, dataset: Any) -> None:
        self.callbacks: List[Any] = parts.callbacks.callbacks
        self._model = parts.model
        self._epochs = parts.epochs
        self._adapter = adapter
        self._dataset = ReplayedDataset(dataset)
        self._epoch_ends = 0
        on_epoch_end = adapter.on_epoch_end

        def counted() -> None:
            self._epoch_ends += 1
            on_epoch_end()

        adapter.on_epoch_end = counted

    @property
    def can_begin_elsewhere(self) -> bool:
        """Whether `go_to` is exact with this Keras."""
        return True

    def took(self, batches: int) -> None:
        """Tells that training took batches."""
        self._dataset.taken += batches

    def is_last(self, batches: int) -> bool:
        """Returns True if the epoch is known to end after so many batches."""
        steps = self._steps()
        return steps is not None and batches >= steps

    def place(self, batches: int) -> Dict[str, Any]:
        """Returns where training is in its data, as plain data for `go_to`.

        Args:
            batches: those of this epoch that are done; 0 at its end.
        """
        continues = bool(batches) or self._keeps_iterator()
        return {
            "iterator": self._dataset.created + (not continues),
            "taken": self._dataset.taken if continues else 0,
            "epoch_ends": self._epoch_ends,
            "steps": self._steps(),
        }

    def go_to(self, epoch: int, batches: int, place: Dict[str, Any]) -> None:
        """Lets `fit` go on in an epoch (from 0), after so many of its batches, in place of its start.

        Args:
            place: as `place` gave it; its "steps" may be None.
        """
        while self._epoch_ends < place["epoch_ends"]:
            self._adapter.on_epoch_end()
        self._start(epoch, batches, place)

    def end_now(self) -> None:
        """Lets `fit` train no epoch."""
        self._set_epoch(self._epochs, 0)

    @abc.abstractmethod
    def forget(self) -> None:
        """Leaves the model, once `fit` has begun, as if it had not been told where to begin."""

    @abc.abstractmethod
    def _steps(self) -> Optional[int]:
        """Returns the batches of an epoch, where they are known."""

    @abc.abstractmethod
    def _keeps_iterator(self) -> bool:
        """Returns True if the next epoch goes on with the iterator of this one."""

    @abc.abstractmethod
    def _start(self, epoch: int, batches: int, place: Dict[str, Any]) -> None:
        """Does the same as `go_to`, with the ends of the epochs before told to the data."""

    @abc.abstractmethod
    def _set_epoch(self, epoch: int, batches: int) -> None:
        """Lets `fit` begin in this epoch, after so many of its batches."""


class _Keras3Fit(RunningFit):
    def __init__(self, parts: _Parts) -> None:
        self._epoch_iterator = parts.loop
        super().__init__(parts, self._epoch_iterator.data_adapter, self._epoch_iterator._distributed_dataset)
        self._epoch_iterator._distributed_dataset = self._dataset
        self._before = self._model._initial_epoch

    @property
    def can_begin_elsewhere(self) -> bool:
        return hasattr(self._epoch_iterator, "_enumerate_iterator")  # Keras 3.7 and newer

    def forget(self) -> None:
        self._model._initial_epoch = self._before

    def _steps(self) -> Optional[int]:
        return self._epoch_iterator.num_batches

    def _keeps_iterator(self) -> bool:
        return (
            self._epoch_iterator.steps_per_epoch is not None
            and self._epoch_iterator._current_iterator is not None
        )

    def _set_epoch(self, epoch: int, batches: int) -> None:
        self._model._initial_epoch = epoch

    def _start(self, epoch: int, batches: int, place: Dict[str, Any]) -> None:
        self._set_epoch(epoch, batches)
        self._dataset.begin_at(place["iterator"], place["taken"])
        loop = self._epoch_iterator
        if loop.steps_per_epoch is None and place["steps"] is not None:
            loop._num_batches = place["steps"]
        enumerate_all = loop._enumerate_iterator

        def enumerate_rest() -> Any:
            del loop._enumerate_iterator
            earlier = place["taken"] - batches if place["taken"] else 0
            for number, step in enumerate(enumerate_all()):
                if number == 0:
                    loop._steps_seen += earlier
                if step[0] >= batches:
                    yield step

        loop._enumerate_iterator = enumerate_rest


class _Keras2Fit(RunningFit):
    def __init__(self, parts: _Parts) -> None:
        self._handler = parts.loop
        super().__init__(parts, self._handler._adapter, self._handler._dataset)
        self._handler._dataset = self._dataset
        self._before = self._model._training_state

    def forget(self) -> None:
        self._model._training_state = self._before

    def _steps(self) -> Optional[int]:
        return self._handler.inferred_steps

    def _keeps_iterator(self) -> bool:
        return not self._adapter.should_recreate_iterator()

    def _set_epoch(self, epoch: int, batches: int) -> None:
        self._model._training_state = _Counters(epoch, batches)

    def _start(self, epoch: int, batches: int, place: Dict[str, Any]) -> None:
        self._set_epoch(epoch, batches)
        if self._handler._inferred_steps is None:
            self._handler._inferred_steps = place["steps"]
        self._dataset.begin_at(place["iterator"], place["taken"], after=0 if self._keeps_iterator() else 1)


class _Counters:
    """Holds where a `fit` of Keras 2 starts."""

    def __init__(self, epoch: int, batches: int) -> None:
        self._start = epoch, batches

    def maybe_load_initial_counters_from_ckpt(
        self, steps_per_epoch: Any, initial_epoch: int, mode: Any = None
    ) -> tuple:
        del steps_per_epoch, initial_epoch, mode
        return self._start


class _Parts:
    """Holds the objects that a `fit` has made so far.

    Attributes:
        model: whose `fit` it is.
        epochs: the number of its last epoch.
        callbacks: its list of callbacks.
        loop: what goes through its data.
    """

    def __init__(self, model: Any, epochs: int, callbacks: Any) -> None:
        self.model = model
        self.epochs = epochs
        self.callbacks = callbacks if hasattr(callbacks, "callbacks") else None
        self.loop: Any = None


@contextlib.contextmanager
def fit_runs(model: Any, epochs: int, callbacks: Any) -> Iterator[None]:
    """Opens a context in which the `fit` of the model runs on this thread.

    Args:
        model: the model.
        epochs: the number of the last epoch.
        callbacks: what `fit` was given.
    """
    stack = _stack()
    stack.append(_Parts(model, epochs, callbacks))
    try:
        yield
    finally:
        stack.pop()


def note_loop(loop: Any) -> None:
    """Notes what goes through data; of what a `fit` makes, the first goes through its own."""
    for parts in _stack()[-1:]:
        parts.loop = loop if parts.loop is None else parts.loop


def note_callbacks(callbacks: Any, model: Any) -> None:
    """Notes a list of callbacks of a model; of those that a `fit` makes, the first is its own."""
    for parts in _stack()[-1:]:
        if parts.model is model and parts.callbacks is None:
            parts.callbacks = callbacks


def running_fit(model: Any) -> Optional[RunningFit]:
    """Returns the `fit` of the model that runs on this thread; None if none does."""
    for parts in reversed(_stack()):
        if parts.model is model and parts.loop is not None and parts.callbacks is not None:
            return _Keras3Fit(parts) if hasattr(parts.loop, "data_adapter") else _Keras2Fit(parts)
    return None


def _stack() -> List[_Parts]:
    if not hasattr(_this_thread, "fits"):
        _this_thread.fits = []
    fits: List[_Parts] = _this_thread.fits
    return fits
