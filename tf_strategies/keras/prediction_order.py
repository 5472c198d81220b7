"""Makes `predict` return rows in the order of the dataset, by never splitting it by files.

Keras 2 does this itself for strategies with several workers.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import tensorflow as tf

from tf_strategies.keras.fit_types import Data
from tf_strategies.keras.group_strategy import group_of
from tf_strategies.keras.types import Model
from tf_strategies.types import Result

__all__ = ["in_order"]


def in_order(original: Callable[..., Result]) -> Callable[..., Result]:
    """Returns `Model.predict` of Keras 3, changed to return rows in order."""

    @functools.wraps(original)
    def predict(self: Model, x: Data, *args: Any, **kwargs: Any) -> Result:
        if isinstance(x, tf.data.Dataset) and group_of(self) is not None:
            x = _split_by_data(x)
        return original(self, x, *args, **kwargs)

    return predict


def _split_by_data(dataset: tf.data.Dataset) -> tf.data.Dataset:
    policies = tf.data.experimental.AutoShardPolicy
    if dataset.options().experimental_distribute.auto_shard_policy not in (policies.AUTO, policies.FILE):
        return dataset
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policies.DATA
    return dataset.with_options(options)
