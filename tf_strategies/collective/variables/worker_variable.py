"""Metric variables that one worker alone can save."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_strategies._tf import compat

__all__ = ["keep_saving_local"]


class WorkerVariable(compat.SyncOnReadVariable):
    """A variable that is reduced over all workers when read as a tensor, but not to be saved.

    Keras saves variables through `numpy()`, and TensorFlow through checkpoints; often the chief saves and nobody else does, so
    neither may communicate, nor may a look at an attribute. They see the part of this worker.
    """

    def assign(self, value, use_locking=False, name=None, read_value=True):
        """Assigns like any variable, but reads nothing back between replicas.

        Such a read would reduce the variable over all workers.
        """
        read_value = read_value and not tf.distribute.in_cross_replica_context()
        return super().assign(value, use_locking=use_locking, name=name, read_value=read_value)

    def numpy(self) -> np.ndarray:
        return self._part_of_worker().numpy()

    def _get_cross_replica(self):
        return self._part_of_worker() if compat.is_saving() else super()._get_cross_replica()

    def __getattr__(self, name: str):
        """Attributes unknown here are the replica's; between replicas those of the first, which needs no reduction."""
        if name == "_values" or name.startswith("_self_"):
            return super().__getattr__(name)
        context = tf.distribute.get_replica_context()
        if context is None or context.strategy is not self._distribute_strategy:
            return getattr(self._values[0], name)
        return super().__getattr__(name)

    def _gather_saveables_for_checkpoint(self):
        def local(factory):
            def make(*args, **kwargs):
                saveable = factory(*args, **kwargs)
                for spec in saveable.specs:
                    spec._tensor = self._part_of_worker
                return saveable

            return make

        return {key: local(factory) for key, factory in super()._gather_saveables_for_checkpoint().items()}

    def _part_of_worker(self) -> tf.Tensor:
        parts = [tf.convert_to_tensor(part) for part in self.values]
        if self.aggregation == tf.VariableAggregation.ONLY_FIRST_REPLICA or len(parts) == 1:
            return parts[0]
        total = tf.add_n(parts)
        return total / len(parts) if self.aggregation == tf.VariableAggregation.MEAN else total


def keep_saving_local(variable):
    """Makes a variable just created a `WorkerVariable` if it is one that is reduced when read; returns it."""
    if compat.is_sync_on_read_variable(variable):
        variable.__class__ = WorkerVariable
    return variable
