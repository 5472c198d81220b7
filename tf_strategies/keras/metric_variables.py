"""Makes variables of metrics count on each replica. They are added up when they are read.

Keras does this since version 3.10. In earlier versions, an assignment by a replica added up the assigned
values of all replicas, including the previous counts.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Callable

import tensorflow as tf

from tf_strategies.keras.group_strategy import GroupStrategy
from tf_strategies.keras.types import Keras3Variable
from tf_strategies.types import TensorLike

__all__ = ["initialize"]


def initialize(original: Callable[..., None], keras: ModuleType) -> Callable[..., None]:
    """Returns the method of `keras.Variable` that makes TensorFlow's variable.

    A variable for a sum is then reduced when it is read.
    """
    del keras

    @functools.wraps(original)
    def initialize_on_read(self: Keras3Variable, value: TensorLike) -> None:
        if self.aggregation != "sum" or not isinstance(tf.distribute.get_strategy(), GroupStrategy):
            original(self, value)
            return
        with tf.variable_creator_scope(_on_read):
            original(self, value)

    return initialize_on_read


def _on_read(create: Callable[..., tf.Variable], **kwargs: Any) -> tf.Variable:
    kwargs.update(
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
        trainable=False,
    )
    return create(**kwargs)
