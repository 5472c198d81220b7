"""How Keras walks through data: as many steps on all workers.

Keras counts the steps of an epoch before the data are split between workers. Here it counts what the strategy has agreed
on, so workers whose own data differ in length take the same steps.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Optional

import tensorflow as tf

from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.shuffling import one_order

__all__ = ["install_keras2", "install_keras3"]


def install_keras3(trainer: ModuleType) -> None:
    """Wraps the epoch iterator of `keras.src.backend.tensorflow.trainer`."""
    iterator = trainer.TFEpochIterator
    made, reset = iterator.__init__, iterator.reset

    @functools.wraps(made)
    def init(self: Any, distribute_strategy: Any = None, *args: Any, **kwargs: Any) -> None:
        with one_order(distribute_strategy, kwargs.get("shuffle", False)):
            made(self, distribute_strategy, *args, **kwargs)
        if _spans_workers(distribute_strategy):
            own = None if _is_dataset(kwargs.get("x")) else self.data_adapter.num_batches
            self._agreed_steps = _agreed_steps(distribute_strategy, self._distributed_dataset, own)
            self._num_batches = self._agreed_steps

    @functools.wraps(reset)
    def reset_steps(self: Any) -> None:
        reset(self)
        if _spans_workers(self._distribute_strategy):
            self._num_batches = self._agreed_steps

    iterator.__init__, iterator.reset = init, reset_steps


def install_keras2(data_adapter: ModuleType) -> None:
    """Wraps the data handler of Keras 2, in its module `src.engine.data_adapter`."""
    handler = data_adapter.DataHandler
    made, configure = handler.__init__, handler._configure_dataset_and_inferred_steps

    @functools.wraps(made)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        with one_order(tf.distribute.get_strategy(), kwargs.get("shuffle", False)):
            made(self, *args, **kwargs)

    @functools.wraps(configure)
    def configure_agreed(
        self: Any, strategy: Any, x: Any, steps_per_epoch: Any, class_weight: Any, distribute: bool
    ) -> None:
        if not (distribute and _spans_workers(strategy)):
            configure(self, strategy, x, steps_per_epoch, class_weight, distribute)
            return
        dataset = self._adapter.get_dataset()
        if isinstance(dataset, tf.data.Dataset):
            if class_weight:
                dataset = dataset.map(data_adapter._make_class_weight_map_fn(class_weight))
            dataset = strategy.experimental_distribute_dataset(dataset)
        agreed = _agreed_steps(strategy, dataset, None if _is_dataset(x) else self._adapter.get_size())
        given = steps_per_epoch is not None
        self._inferred_steps = self._infer_steps(steps_per_epoch, dataset) if given else agreed
        self._dataset = dataset
        self._validate_data_handler()

    handler.__init__, handler._configure_dataset_and_inferred_steps = init, configure_agreed


def _agreed_steps(strategy: GroupStrategy, distributed: Any, own: Optional[int]) -> Optional[int]:
    """The steps of an epoch, equal on all workers; None where it ends when the data do.

    Args:
        strategy: the model's.
        distributed: the data of all workers.
        own: how many batches this worker's Sequence or PyDataset has; Keras knows, the dataset made of it does not.
    """
    agreed = int(distributed.cardinality)
    if agreed >= 0:
        return agreed
    strategy.require_agreement("the number of batches of the data given to Keras", f"{own}")
    return own


def _spans_workers(strategy: Any) -> bool:
    return isinstance(strategy, GroupStrategy) and strategy.size > 1


def _is_dataset(data: Any) -> bool:
    return isinstance(data, (tf.data.Dataset, tf.distribute.DistributedDataset))
