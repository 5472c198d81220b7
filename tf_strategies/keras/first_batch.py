"""Keras 3 builds a model from the shapes of the first batch; here it learns them without taking the batch.

The batch it takes is lost where the data cannot be read twice, as from a Python generator, and costs a start of the
whole input pipeline otherwise. Where the dataset does not tell the shapes, one is taken, as it is on the first replica:
Keras would average it over all of them.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable, Optional

import tensorflow as tf

from tf_strategies.keras.group_strategy import GroupStrategy

__all__ = ["build"]


def build(original: Callable, keras: ModuleType) -> Callable:
    """Returns the method that builds a model from the shapes of its data."""
    del keras

    @functools.wraps(original)
    def build_from_shapes(self: Any, iterator: Any = None, data_batch: Any = None) -> None:
        strategy = self.distribute_strategy
        if isinstance(strategy, GroupStrategy) and iterator is not None:
            data_batch = _batch_like(iterator._distributed_dataset.element_spec)
            if data_batch is None:
                data_batch = _first_batch(iterator, strategy)
            iterator = None
        original(self, iterator=iterator, data_batch=data_batch)

    return build_from_shapes


def _batch_like(element_spec: Any) -> Optional[Any]:
    """Returns a batch of one row for each spec of a distributed dataset.

    None if a spec leaves a dimension of the rows open.
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


def _first_batch(iterator: Any, strategy: GroupStrategy) -> Any:
    _, _, batches = next(iter(iterator))
    return tf.nest.map_structure(lambda part: strategy.experimental_local_results(part)[0], next(batches))


def _of_one_replica(spec: Any) -> Any:
    return getattr(spec, "_value_specs", (spec,))[0]
