"""How Keras walks through data: as many steps as there are.

Keras counts the steps of an epoch before the data are split between workers. Here it counts after. Workers that take every step
together count what they have agreed on, so that those whose own data differ in length take the same steps.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Iterator, Optional, Tuple

import tensorflow as tf

from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.shuffling import one_order
from tf_strategies.keras.worker_strategy import WorkerStrategy

__all__ = ["install_keras2", "install_keras3"]


def install_keras3(trainer: ModuleType) -> None:
    """Wraps the epoch iterator of `keras.src.backend.tensorflow.trainer`."""
    iterator = trainer.TFEpochIterator
    made, reset = iterator.__init__, iterator.reset

    @functools.wraps(made)
    def init(self: Any, distribute_strategy: Any = None, *args: Any, **kwargs: Any) -> None:
        dealt = _deals_batches(distribute_strategy)
        with one_order(distribute_strategy, kwargs.get("shuffle", False)):
            made(self, distribute_strategy, *args, **kwargs)
        if _is_shared(distribute_strategy):
            own = None if _is_dataset(kwargs.get("x")) else self.data_adapter.num_batches
            self._steps = _steps(distribute_strategy, self._distributed_dataset, own, dealt)
            self._num_batches = self._steps

    @functools.wraps(reset)
    def reset_steps(self: Any) -> None:
        reset(self)
        if _is_shared(self._distribute_strategy):
            self._num_batches = self._steps

    iterator.__init__, iterator.reset = init, reset_steps


def install_keras2(data_adapter: ModuleType) -> None:
    """Wraps the data handler of Keras 2, in its module `src.engine.data_adapter`."""
    handler = data_adapter.DataHandler
    made, configure = handler.__init__, handler._configure_dataset_and_inferred_steps
    enumerate_epochs = handler.enumerate_epochs

    @functools.wraps(made)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        with one_order(tf.distribute.get_strategy(), kwargs.get("shuffle", False)):
            made(self, *args, **kwargs)

    @functools.wraps(configure)
    def configure_agreed(
        self: Any, strategy: Any, x: Any, steps_per_epoch: Any, class_weight: Any, distribute: bool
    ) -> None:
        if not (distribute and _is_shared(strategy)):
            configure(self, strategy, x, steps_per_epoch, class_weight, distribute)
            return
        self._dealt = _deals_batches(strategy)
        dataset = self._adapter.get_dataset()
        if isinstance(dataset, tf.data.Dataset):
            if class_weight:
                dataset = dataset.map(data_adapter._make_class_weight_map_fn(class_weight))
            dataset = strategy.experimental_distribute_dataset(dataset)
        own = None if _is_dataset(x) else self._adapter.get_size()
        steps = _steps(strategy, dataset, own, self._dealt)
        given = steps_per_epoch is not None
        self._inferred_steps = self._infer_steps(steps_per_epoch, dataset) if given else steps
        self._dataset = dataset
        self._validate_data_handler()

    @functools.wraps(enumerate_epochs)
    def enumerate_shares(self: Any) -> Iterator[Tuple[int, Any]]:
        strategy = tf.distribute.get_strategy()
        batches = self._adapter.get_size()
        on_and_on = not self._adapter.should_recreate_iterator() and self._steps_per_epoch is None
        for epoch, data in enumerate_epochs(self):
            if getattr(self, "_dealt", False) and batches and on_and_on:
                self._inferred_steps = _turns(strategy, epoch - self._initial_epoch, batches)
            yield epoch, data

    handler.__init__, handler._configure_dataset_and_inferred_steps = init, configure_agreed
    handler.enumerate_epochs = enumerate_shares


def _steps(strategy: WorkerStrategy, distributed: Any, own: Optional[int], dealt: bool) -> Optional[int]:
    """The steps of an epoch; None where it ends when the data do.

    Args:
        strategy: the model's.
        distributed: the data as they are split.
        own: how many batches this worker's arrays, Sequence or PyDataset have; Keras knows, the dataset made of it does not.
        dealt: whether each worker gets some of these batches.
    """
    if dealt and own is not None:
        return _turns(strategy, 0, own)
    known = int(distributed.cardinality() if callable(distributed.cardinality) else distributed.cardinality)
    if known >= 0:
        return known
    if not isinstance(strategy, GroupStrategy):
        return own
    strategy.require_agreement("the number of batches of the data given to Keras", f"{own}")
    return own


def _turns(strategy: WorkerStrategy, epoch: int, batches: int) -> int:
    """How many of an epoch's batches a worker has its turn for, where batches are dealt out on and on over all epochs."""

    def until(end: int) -> int:
        return (end - strategy.rank + strategy.size - 1) // strategy.size

    return until((epoch + 1) * batches) - until(epoch * batches)


def _deals_batches(strategy: Any) -> bool:
    return _is_shared(strategy) and strategy.deals_batches


def _is_shared(strategy: Any) -> bool:
    return isinstance(strategy, WorkerStrategy) and strategy.size > 1


def _is_dataset(data: Any) -> bool:
    return isinstance(data, (tf.data.Dataset, tf.distribute.DistributedDataset))
