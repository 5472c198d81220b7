"""Implements metric variables that one worker alone can save."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tf_strategies._tf import compat

__all__ = ["keep_saving_local"]


class WorkerVariable(compat.SyncOnReadVariable):
    """A variable that is reduced over all workers when it is read as a tensor, but not when it is saved.

    Keras saves variables through `numpy()`, and TensorFlow through checkpoints; often only the chief saves,
    so neither may communicate. The same holds for reading an attribute. They use the value of this worker.
    """

    def assign(self, value, use_locking=False, name=None, read_value=True):
        """Assigns like any variable, but does not read the variable back outside of replica functions.

        That read would reduce the variable over all workers.
        """
        read_value = read_value and not tf.distribute.in_cross_replica_context()
        return super().assign(value, use_locking=use_locking, name=name, read_value=read_value)

    def numpy(self) -> np.ndarray:
        return self._part_of_worker().numpy()

    def _get_cross_replica(self):
        return self._part_of_worker() if compat.is_saving() else super()._get_cross_replica()

    def __getattr__(self, name: str):
        """Returns other attributes of the replica's variable, or outside of replica functions of the first replica's."""
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


def keep_saving_local(variable: tf.Variable) -> tf.Variable:
    """Turns a new variable into a `WorkerVariable` if it is reduced when read. Returns the variable."""
    if compat.is_sync_on_read_variable(variable):
        variable.__class__ = WorkerVariable
    return variable
