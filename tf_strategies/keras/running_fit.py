"""Finds the position of a running `fit` in its data, and starts a `fit` at another position.

Keras does not give callbacks access to either, and only Keras 2 can start in the middle of an epoch. So the
bridge records the first objects that `fit` makes: its data loop and its list of callbacks. The dataset is
wrapped in a `ReplayedDataset`, which counts the iterators that the loop makes. To resume at a position, it
makes as many iterators as were made before, so that datasets that reshuffle for each iterator give the same
order. It then takes the same number of batches from the last one.
"""

from __future__ import annotations

import abc
import contextlib
import threading
from typing import Iterator, List, Optional, Sequence, Tuple, TypedDict, Union, cast

from tf_strategies.errors import OptionsError
from tf_strategies.keras.fit_batches import FitBatches, Parts, add_part
from tf_strategies.keras.fit_types import (
    Callback,
    CallbackList,
    Callbacks,
    DataAdapter,
    DataLoop,
    Dataset,
    Keras2DataAdapter,
)
from tf_strategies.keras.replayed_dataset import ReplayedDataset
from tf_strategies.keras.types import Keras2Model, Keras3Model, Model
from tf_strategies.types import Structure

__all__ = [
    "Place",
    "RunningFit",
    "awaits_loop",
    "calls_callbacks",
    "fit_runs",
    "is_fitting",
    "note_callbacks",
    "note_loop",
    "running_callbacks",
    "running_fit",
]

_this_thread = threading.local()


class _PartsTaken(TypedDict, total=False):
    earlier: Parts
    parts: Parts


class Place(_PartsTaken):
    """A position of training in its data, as plain data.

    Attributes:
        iterator: the number of the dataset's iterator, from 1.
        taken: the number of batches that were taken from it.
        epoch_ends: the number of times that the data were told of the end of an epoch.
        steps: the number of batches of an epoch, or None if it is unknown.
        earlier: if batches follow the number of workers, the parts of earlier epochs that were taken from this iterator.
        parts: the same of this epoch.
    """

    iterator: int
    taken: int
    epoch_ends: int
    steps: Optional[int]


class RunningFit(abc.ABC):
    """Defines the common interface of a running `fit` in Keras 2 and Keras 3.

    Attributes:
        callbacks: the list of callbacks that `fit` calls. It can be changed.
        contexts: those that end with `fit`, also when it raises an error.
    """

    def __init__(self, parts: _Parts, adapter: DataAdapter, dataset: Dataset) -> None:
        self._list = cast(CallbackList, parts.callbacks)
        self.callbacks: List[Callback] = self._list.callbacks
        self.contexts = parts.contexts
        self._model = parts.model
        self._epochs = parts.epochs
        self._adapter = adapter
        self._dataset = ReplayedDataset(dataset)
        self._epoch_ends = 0
        self._batches = parts.batches
        self._earlier: Parts = []
        self._parts: Parts = []
        self._steps_of_epochs: Optional[Tuple[Optional[int]]] = None  # if those of this epoch are others
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
        """Records that training took batches."""
        self._dataset.taken += batches
        if self._batches is not None:
            add_part(self._parts, self._batches.rows, batches)

    def epoch_ended(self) -> None:
        """Records the end of an epoch."""
        if self._batches is not None:
            if not self._keeps_iterator():
                self._earlier = []
            elif self._batches.per_epoch is not None:
                add_part(self._earlier, self._batches.given, self._batches.per_epoch)
            else:
                for rows, batches in self._parts:
                    add_part(self._earlier, rows, batches)
            self._parts = []
        if self._steps_of_epochs is not None:
            self._show_steps(*self._steps_of_epochs)
            self._steps_of_epochs = None

    def is_last(self, batches: int) -> bool:
        """Returns True if the epoch is known to end after this number of batches."""
        steps = self._steps()
        return steps is not None and batches >= steps

    def place(self, batches: int) -> Place:
        """Returns the position of training in its data, as plain data for `go_to`.

        Args:
            batches: the number of finished batches of this epoch; 0 at its end.
        """
        continues = bool(batches) or self._keeps_iterator()
        place: Place = {
            "iterator": self._dataset.created + (not continues),
            "taken": self._dataset.taken if continues else 0,
            "epoch_ends": self._epoch_ends,
            "steps": self._steps(),
        }
        if self._batches is not None:
            place["earlier"] = [list(each) for each in self._earlier] if continues else []
            place["parts"] = [list(each) for each in self._parts] if continues else []
        return place

    def go_to(self, epoch: int, batches: int, place: Place) -> None:
        """Makes `fit` continue in an epoch (from 0), after a number of its batches.

        Args:
            place: a result of `place`. Its "steps" may be None.
        """
        while self._epoch_ends < place["epoch_ends"]:
            self._adapter.on_epoch_end()
        if self._batches is None:
            if "parts" in place:
                place = {**place, "steps": None}  # they may have been those of other batches
            if place.get("parts") or place.get("earlier"):
                raise OptionsError(
                    "the place of fit that was saved was reached with batches that follow the number of workers; make the "
                    'strategy with Elastic(batch="per_worker"), as before, and give fit data with a known batch size'
                )
            self._start(epoch, batches, place, None)
            return
        earlier = place["taken"] - batches if batches else place["taken"]
        given = self._batches.given
        self._earlier = place.get("earlier", [[given, earlier]] if earlier else [])
        self._parts = place.get("parts", [[given, batches]] if batches else [])
        rest, steps = None, None
        if self._parts or self._earlier:
            rest = self._batches.distributed(self._earlier, self._parts)
        if self._parts:
            self._steps_of_epochs = (self._steps(),)
            steps = self._batches.steps(self._parts)
            self._show_steps(steps)
        self._start(epoch, batches, {**place, "taken": 0, "steps": steps}, rest)

    def end_now(self) -> None:
        """Makes `fit` end without training."""
        self._set_epoch(self._epochs, 0)

    @abc.abstractmethod
    def forget(self) -> None:
        """Removes the start position from the model, after `fit` has begun."""

    @abc.abstractmethod
    def _steps(self) -> Optional[int]:
        """Returns the number of batches of an epoch, or None if it is unknown."""

    @abc.abstractmethod
    def _keeps_iterator(self) -> bool:
        """Returns True if the next epoch continues with the iterator of this one."""

    @abc.abstractmethod
    def _start(self, epoch: int, batches: int, place: Place, rest: Optional[Dataset]) -> None:
        """Does the same as `go_to`, but does not tell the data of the ends of epochs; `rest` as for `ReplayedDataset`."""

    def _show_steps(self, steps: Optional[int]) -> None:
        """Sets the number of batches of the next epoch, also for callbacks."""
        self._set_steps(steps)
        if self._list.params:
            self._list.set_params({**self._list.params, "steps": steps})

    @abc.abstractmethod
    def _set_steps(self, steps: Optional[int]) -> None:
        """Sets the number of batches of the next epoch; None if it is unknown."""

    @abc.abstractmethod
    def _set_epoch(self, epoch: int, batches: int) -> None:
        """Makes `fit` start in this epoch, after a number of its batches."""


class _Keras3Fit(RunningFit):
    _model: Keras3Model

    def __init__(self, parts: _Parts) -> None:
        self._epoch_iterator = parts.loop
        super().__init__(parts, self._epoch_iterator.data_adapter, self._epoch_iterator._distributed_dataset)
        self._epoch_iterator._distributed_dataset = self._dataset
        self._before = self._model._initial_epoch
        # Keras then counts the batches, and the attempt to read one more.
        self._has_unknown_length = self._epoch_iterator.num_batches is None

    @property
    def can_begin_elsewhere(self) -> bool:
        return hasattr(self._epoch_iterator, "_enumerate_iterator")  # Keras 3.7 and newer

    def forget(self) -> None:
        self._model._initial_epoch = self._before

    def _steps(self) -> Optional[int]:
        steps: Optional[int] = self._epoch_iterator.num_batches
        return None if self._has_unknown_length else steps

    def _keeps_iterator(self) -> bool:
        return (
            self._epoch_iterator.steps_per_epoch is not None
            and self._epoch_iterator._current_iterator is not None
        )

    def _set_epoch(self, epoch: int, batches: int) -> None:
        self._model._initial_epoch = epoch

    def _set_steps(self, steps: Optional[int]) -> None:
        self._has_unknown_length = steps is None
        if self._epoch_iterator.steps_per_epoch is not None:
            self._epoch_iterator.steps_per_epoch = steps
        else:
            self._epoch_iterator._num_batches = steps

    def _start(self, epoch: int, batches: int, place: Place, rest: Optional[Dataset]) -> None:
        self._set_epoch(epoch, batches)
        self._dataset.begin_at(place["iterator"], place["taken"], rest=rest)
        loop = self._epoch_iterator
        if loop.steps_per_epoch is None and place["steps"] is not None:
            loop._num_batches = place["steps"]
        enumerate_all = loop._enumerate_iterator

        def enumerate_rest() -> Iterator[Structure]:
            del loop._enumerate_iterator
            earlier = place["taken"] - batches if place["taken"] else 0
            for number, step in enumerate(enumerate_all()):
                if number == 0:
                    loop._steps_seen += earlier
                if step[0] >= batches:
                    yield step

        loop._enumerate_iterator = enumerate_rest


class _Keras2Fit(RunningFit):
    _model: Keras2Model
    _adapter: Keras2DataAdapter

    def __init__(self, parts: _Parts) -> None:
        self._handler = parts.loop
        super().__init__(parts, self._handler._adapter, self._handler._dataset)
        self._handler._dataset = self._dataset
        self._before = self._model._training_state

    def forget(self) -> None:
        self._model._training_state = self._before

    def _steps(self) -> Optional[int]:
        steps: Optional[int] = self._handler.inferred_steps
        return steps

    def _keeps_iterator(self) -> bool:
        return not self._adapter.should_recreate_iterator()

    def _set_epoch(self, epoch: int, batches: int) -> None:
        self._model._training_state = _Counters(epoch, batches)

    def _set_steps(self, steps: Optional[int]) -> None:
        self._handler._inferred_steps = steps

    def _start(self, epoch: int, batches: int, place: Place, rest: Optional[Dataset]) -> None:
        self._set_epoch(epoch, batches)
        if self._handler._inferred_steps is None:
            self._handler._inferred_steps = place["steps"]
        after = 0 if self._keeps_iterator() else 1
        self._dataset.begin_at(place["iterator"], place["taken"], after=after, rest=rest)


class _Counters:
    """Holds the start position of a `fit` in Keras 2."""

    def __init__(self, epoch: int, batches: int) -> None:
        self._start = epoch, batches

    def maybe_load_initial_counters_from_ckpt(
        self, steps_per_epoch: Optional[int], initial_epoch: int, mode: Optional[str] = None
    ) -> Tuple[int, int]:
        del steps_per_epoch, initial_epoch, mode
        return self._start


class _Parts:
    """Holds the objects that a `fit` has made so far.

    Attributes:
        model: the model that is trained.
        epochs: the number of the last epoch.
        callbacks: its list of callbacks.
        loop: the data loop.
        batches: those of the loop, if they follow the number of workers.
        contexts: those that end with it.
    """

    def __init__(self, model: Model, epochs: int, callbacks: Union[Callbacks, CallbackList]) -> None:
        self.model = model
        self.epochs = epochs
        self.callbacks: Optional[CallbackList] = callbacks if hasattr(callbacks, "callbacks") else None  # type: ignore[assignment]
        self.loop: DataLoop = None
        self.batches: Optional[FitBatches] = None
        self.contexts = contextlib.ExitStack()


@contextlib.contextmanager
def fit_runs(model: Model, epochs: int, callbacks: Union[Callbacks, CallbackList]) -> Iterator[None]:
    """Opens a context that records the `fit` of the model on this thread.

    Args:
        model: the model.
        epochs: the number of the last epoch.
        callbacks: the callbacks that were passed to `fit`.
    """
    stack = _stack()
    parts = _Parts(model, epochs, callbacks)
    stack.append(parts)
    try:
        with parts.contexts:
            yield
    finally:
        stack.pop()


def is_fitting(model: Model) -> bool:
    """Returns True within a `fit` of the model on this thread."""
    return any(parts.model is model for parts in _stack())


def awaits_loop() -> bool:
    """Returns True if the next data loop goes through the training data of a `fit`."""
    return any(parts.loop is None for parts in _stack()[-1:])


def calls_callbacks() -> bool:
    """Returns True within a `fit` that has its list of callbacks, as in `evaluate` that a callback calls."""
    return any(parts.callbacks is not None for parts in _stack()[-1:])


def note_loop(loop: DataLoop, batches: Optional[FitBatches] = None) -> None:
    """Records a data loop, and its batches if they follow the number of workers."""
    if awaits_loop():
        parts = _stack()[-1]
        parts.loop, parts.batches = loop, batches


def note_callbacks(callbacks: CallbackList, model: Optional[Model]) -> None:
    """Records a list of callbacks of a model. The first one that a `fit` makes is its own."""
    for parts in _stack()[-1:]:
        if parts.model is model and parts.callbacks is None:
            parts.callbacks = callbacks


def running_fit(model: Model) -> Optional[RunningFit]:
    """Returns the running `fit` of the model on this thread, or None."""
    for parts in reversed(_stack()):
        if parts.model is model and parts.loop is not None and parts.callbacks is not None:
            return _Keras3Fit(parts) if hasattr(parts.loop, "data_adapter") else _Keras2Fit(parts)
    return None


def running_callbacks(model: Model) -> Sequence[Callback]:
    """Returns the callbacks of the running `fit` of the model on this thread."""
    for parts in reversed(_stack()):
        if parts.model is model and parts.callbacks is not None:
            return parts.callbacks.callbacks
    return ()


def _stack() -> List[_Parts]:
    if not hasattr(_this_thread, "fits"):
        _this_thread.fits = []
    fits: List[_Parts] = _this_thread.fits
    return fits
