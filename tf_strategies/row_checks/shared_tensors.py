"""Knows the tensors of a replica function that are equal on all replicas."""

from __future__ import annotations

from typing import List, Set

import tensorflow as tf

from tf_strategies.types import Structure

__all__ = ["SharedTensors"]


class SharedTensors:
    """Holds tensors of the replica function that is traced.

    They are results of collectives, which have the rows of all replicas, and values of variables that come from servers.
    """

    def __init__(self) -> None:
        self._tensors: List[tf.Tensor] = []
        self._ids: Set[int] = set()
        self._values: Set[int] = set()

    def add(self, results: Structure) -> None:
        """Adds tensors, or values with a tensor for each replica, in a structure."""
        for each in tf.nest.flatten(results):
            for part in each.values if isinstance(each, tf.distribute.DistributedValues) else (each,):
                for tensor in (part.values, part.indices) if isinstance(part, tf.IndexedSlices) else (part,):
                    self._tensors.append(tensor)
                    self._ids.add(id(tensor))

    def add_value(self, value: tf.Tensor) -> None:
        """Adds the value of a variable."""
        self.add(value)
        self._values.add(id(value))

    def is_value(self, tensor: tf.Tensor) -> bool:
        """Returns True for the value of a variable."""
        return id(tensor) in self._values

    def clear(self) -> None:
        """Forgets all."""
        self._tensors.clear()
        self._ids.clear()
        self._values.clear()

    def __contains__(self, tensor: tf.Tensor) -> bool:
        return id(tensor) in self._ids
