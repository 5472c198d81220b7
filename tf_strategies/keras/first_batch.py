"""Builds Keras 3 models from the shapes of the data, without taking a batch.

Keras 3 itself takes the first batch for this. The batch is lost if the data cannot be read twice, as with a
Python generator; otherwise the whole input pipeline starts an additional time. If the dataset does not know
its shapes, a batch is taken from the first replica, because Keras would average it over all replicas.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Callable, Optional

import tensorflow as tf

from tf_strategies.keras.fit_types import DataLoop
from tf_strategies.keras.types import Model
from tf_strategies.keras.worker_strategy import WorkerStrategy
from tf_strategies.types import Structure

__all__ = ["build"]


def build(original: Callable[..., None], keras: ModuleType) -> Callable[..., None]:
    """Returns the method that builds a model from the shapes of its data."""
    del keras

    @functools.wraps(original)
    def build_from_shapes(
        self: Model, iterator: Optional[DataLoop] = None, data_batch: Structure = None
    ) -> None:
        strategy = self.distribute_strategy
        if isinstance(strategy, WorkerStrategy) and iterator is not None:
            data_batch = _batch_like(strategy.batch_of(iterator._distributed_dataset.element_spec))
            if data_batch is None:
                data_batch = _first_batch(iterator, strategy)
            iterator = None
        original(self, iterator=iterator, data_batch=data_batch)

    return build_from_shapes


def _batch_like(element_spec: Structure) -> Optional[Structure]:
    """Returns a batch of one row for each spec of a distributed dataset.

    Returns None if a spec has an unknown dimension besides the rows.
    """
    rows = tf.nest.map_structure(_of_one_replica, element_spec)
    specs = tf.nest.flatten(rows)
    if not all(isinstance(spec, tf.TensorSpec) and spec.shape.rank for spec in specs):
        return None
    if not all(spec.shape[1:].is_fully_defined() for spec in specs):
        return None
    return tf.nest.map_structure(
        lambda spec: tf.TensorSpec([spec.shape[0] or 1, *spec.shape[1:]], spec.dtype), rows
    )


def _first_batch(iterator: DataLoop, strategy: WorkerStrategy) -> Structure:
    _, _, batches = next(iter(iterator))
    batch = strategy.batch_of(next(batches))
    return tf.nest.map_structure(lambda part: strategy.experimental_local_results(part)[0], batch)


def _of_one_replica(spec: tf.TypeSpec) -> tf.TypeSpec:
    return getattr(spec, "_value_specs", (spec,))[0]
