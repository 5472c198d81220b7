"""Makes Keras take the right number of steps of distributed data.

Keras counts the steps of an epoch before the data are split between workers. Here it counts them afterwards.
Workers that take every step together use the number they have agreed on, even if their own data differ in
length.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from types import ModuleType
from typing import Any, Callable, ContextManager, Dict, Iterator, Optional, Sequence, Tuple, Union

import tensorflow as tf

from tf_strategies.keras.fit_batches import ArrayRows, FitBatches
from tf_strategies.keras.fit_types import Data, DataAdapter, DataLoop, Dataset
from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.refusals import refuse_few_batches
from tf_strategies.keras.running_fit import awaits_loop, note_loop
from tf_strategies.keras.shuffling import one_order
from tf_strategies.keras.worker_strategy import WorkerStrategy
from tf_strategies.types import Result, Structure

__all__ = [
    "accept_distributed_data",
    "configure_steps_keras2",
    "enumerate_epochs_keras2",
    "init_handler_keras2",
    "init_iterator_keras3",
    "reset_iterator_keras3",
    "wait_for_steps",
]


def init_iterator_keras3(made: Callable[..., None], keras: ModuleType) -> Callable[..., None]:
    """Returns the constructor of an epoch iterator of Keras 3, changed to count the steps that all workers take."""
    del keras

    @functools.wraps(made)
    def init(
        self: DataLoop,
        distribute_strategy: Optional[tf.distribute.Strategy] = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        dealt = _deals_batches(distribute_strategy)
        given = kwargs.get("steps_per_epoch")
        following = _following(distribute_strategy, lambda: self.data_adapter, given)
        with one_order(distribute_strategy, kwargs.get("shuffle", False)), following as batches:
            made(self, distribute_strategy, *args, **kwargs)
        if batches and given is not None:
            self.steps_per_epoch = batches[0].steps([])
        if batches and not batches[0].are_as_given:
            self._num_batches = self._steps = batches[0].steps([]) if given is None else None
        elif _is_shared(distribute_strategy):
            own = None if _is_dataset(kwargs.get("x")) else self.data_adapter.num_batches
            self._steps = _steps(distribute_strategy, self._distributed_dataset, own, dealt)
            self._num_batches = self._steps
        self._goes_on = given is not None and hasattr(kwargs.get("x"), "__next__")
        note_loop(self, *batches)

    return init


def accept_distributed_data(is_dataset: Callable[[Data], bool], keras: ModuleType) -> Callable[[Data], bool]:
    """Returns the function that recognizes datasets of TensorFlow, with those of `distribute_datasets_from_function`."""
    del keras

    @functools.wraps(is_dataset)
    def is_any_dataset(x: Data) -> bool:
        return is_dataset(x) or isinstance(x, tf.distribute.DistributedDataset)

    return is_any_dataset


def reset_iterator_keras3(reset: Callable[..., None], keras: ModuleType) -> Callable[..., None]:
    """Returns the method that restarts an epoch iterator, changed to keep the number of steps.

    A Python generator goes on where the last validation ended. A new iterator would leave out what TensorFlow has taken from the
    generator in advance, and that is not the same number of batches on all workers.
    """
    del keras

    @functools.wraps(reset)
    def reset_steps(self: DataLoop) -> None:
        current = self._current_iterator
        reset(self)
        if _is_shared(self._distribute_strategy):
            self._num_batches = self._steps
            self._current_iterator = current if self._goes_on else None

    return reset_steps


def wait_for_steps(wait: Callable[..., None], keras: ModuleType) -> Callable[..., None]:
    """Returns the method that waits for the steps of an epoch, changed to wait for lost variables that come back, too."""
    del keras

    @functools.wraps(wait)
    def wait_or_recover(self: DataLoop) -> None:
        strategy = getattr(self, "_distribute_strategy", None) or tf.distribute.get_strategy()
        try:
            wait(self)
        except tf.errors.OpError as error:
            if not isinstance(strategy, WorkerStrategy) or not strategy.recover(error, strategy.generation):
                raise

    return wait_or_recover


def init_handler_keras2(made: Callable[..., None], keras: ModuleType) -> Callable[..., None]:
    """Returns the constructor of a data handler of Keras 2, changed to shuffle in the same order on all workers."""
    del keras

    @functools.wraps(made)
    def init(self: DataLoop, *args: Any, **kwargs: Any) -> None:
        with one_order(tf.distribute.get_strategy(), kwargs.get("shuffle", False)):
            made(self, *args, **kwargs)
        note_loop(self, *getattr(self, "batches_of_fit", ()))

    return init


def configure_steps_keras2(configure: Callable[..., None], keras: ModuleType) -> Callable[..., None]:
    """Returns the method of a data handler that computes the number of steps of an epoch, for all workers."""
    with_class_weights = importlib.import_module(f"{keras.__name__}.src.engine.data_adapter")

    @functools.wraps(configure)
    def configure_agreed(
        self: DataLoop,
        strategy: tf.distribute.Strategy,
        x: Data,
        steps_per_epoch: Optional[int],
        class_weight: Optional[Dict[int, float]],
        distribute: bool,
    ) -> None:
        if not (distribute and (_is_shared(strategy) or _may_follow(strategy))):
            configure(self, strategy, x, steps_per_epoch, class_weight, distribute)
            return
        self._dealt = _deals_batches(strategy)
        self.batches_of_fit: Sequence[FitBatches] = ()
        dataset = self._adapter.get_dataset()
        if isinstance(dataset, tf.data.Dataset):
            if class_weight:
                dataset = dataset.map(with_class_weights._make_class_weight_map_fn(class_weight))
            following = _following(strategy, lambda: self._adapter, steps_per_epoch)
            with following as self.batches_of_fit:
                dataset = strategy.experimental_distribute_dataset(dataset)
        own = None if _is_dataset(x) else self._adapter.get_size()
        if changed := [each for each in self.batches_of_fit if not each.are_as_given]:
            steps = changed[0].steps([])
        else:
            steps = _steps(strategy, dataset, own, self._dealt)
        given = steps_per_epoch is not None and not changed
        self._inferred_steps = self._infer_steps(steps_per_epoch, dataset) if given else steps
        self._dataset = dataset
        self._validate_data_handler()

    return configure_agreed


def enumerate_epochs_keras2(
    enumerate_epochs: Callable[..., Iterator[Tuple[int, Structure]]], keras: ModuleType
) -> Callable[..., Iterator[Tuple[int, Structure]]]:
    """Returns the method of a data handler that goes through epochs, with the number of steps of this worker."""
    del keras

    @functools.wraps(enumerate_epochs)
    def enumerate_shares(self: DataLoop) -> Iterator[Tuple[int, Structure]]:
        strategy = tf.distribute.get_strategy()
        batches = self._adapter.get_size()
        on_and_on = not self._adapter.should_recreate_iterator() and self._steps_per_epoch is None
        for epoch, data in enumerate_epochs(self):
            if getattr(self, "_dealt", False) and batches and on_and_on:
                self._inferred_steps = _turns(strategy, epoch - self._initial_epoch, batches)
            yield epoch, data

    return enumerate_shares


def _steps(
    strategy: WorkerStrategy,
    distributed: Dataset,
    own: Optional[int],
    dealt: bool,
) -> Optional[int]:
    """Returns the number of steps of an epoch, or None if the epoch ends with the data.

    Args:
        strategy: the strategy of the model.
        distributed: the distributed data.
        own: the number of batches of this worker's arrays, Sequence or PyDataset. Keras knows it; the dataset
            made from them does not.
        dealt: whether these batches are dealt out to the workers.
    """
    if dealt and own is not None:
        refuse_few_batches(own, strategy.size)
        return _turns(strategy, 0, own)
    known = int(distributed.cardinality() if callable(distributed.cardinality) else distributed.cardinality)
    if known >= 0:
        return known
    if not isinstance(strategy, GroupStrategy):
        return own
    strategy.require_agreement("the number of batches of the data given to Keras", f"{own}")
    if own is not None:
        strategy.note_equal_length(distributed)
    return own


def _turns(strategy: WorkerStrategy, epoch: int, batches: int) -> int:
    """Returns the number of an epoch's batches that a worker gets, if batches are dealt out in turn over all epochs."""

    def until(end: int) -> int:
        return (end - strategy.rank + strategy.size - 1) // strategy.size

    return until((epoch + 1) * batches) - until(epoch * batches)


def _following(
    strategy: Optional[tf.distribute.Strategy],
    adapter: Callable[[], DataAdapter],
    steps_per_epoch: Optional[int],
) -> ContextManager[Sequence[FitBatches]]:
    """Opens the context in which a data loop splits its data. Yields the batches of `fit` if they follow the workers."""
    if _may_follow(strategy):
        return strategy.batches_of_fit(lambda: _rows_of_arrays(adapter()), steps_per_epoch)
    return contextlib.nullcontext(())


def _may_follow(strategy: Optional[tf.distribute.Strategy]) -> bool:
    return isinstance(strategy, GroupStrategy) and strategy.batch_is_per_worker and awaits_loop()


def _rows_of_arrays(adapter: DataAdapter) -> Optional[ArrayRows]:
    """Returns the rows of arrays; None for other data."""
    has_partial, size = _called(adapter.has_partial_batch), _called(adapter.batch_size)
    if has_partial is None or size is None:
        return None
    batches = adapter.num_batches if hasattr(adapter, "num_batches") else adapter.get_size()
    last = _called(adapter.partial_batch_size) if has_partial else size
    goes_on = not getattr(adapter, "should_recreate_iterator", lambda: True)()
    return ArrayRows(size, (batches - 1) * size + last, batches if goes_on else None)


def _called(value: Union[Result, Callable[[], Result]]) -> Result:
    """Returns a property of Keras 3, or the result of the method that Keras 2 has instead."""
    return value() if callable(value) else value


def _deals_batches(strategy: Optional[tf.distribute.Strategy]) -> bool:
    return _is_shared(strategy) and strategy.deals_batches


def _is_shared(strategy: Optional[tf.distribute.Strategy]) -> bool:
    return isinstance(strategy, WorkerStrategy) and strategy.may_have_others


def _is_dataset(data: Data) -> bool:
    return isinstance(data, (tf.data.Dataset, tf.distribute.DistributedDataset))
