"""Keras callbacks for several workers.

Each works with Keras 3, tf_keras and Keras 2.15, and without a strategy.
"""

from __future__ import annotations

from tf_strategies.callbacks.backup_and_restore import BackupAndRestore
from tf_strategies.callbacks.checkpoint_file import CheckpointError
from tf_strategies.callbacks.prometheus_endpoint import PrometheusEndpoint
from tf_strategies.callbacks.staleness_tensorboard import StalenessTensorBoard
from tf_strategies.callbacks.step_tensorboard import StepTensorBoard
from tf_strategies.callbacks.stop_at_step import StopAtStep

__all__ = [
    "BackupAndRestore",
    "CheckpointError",
    "PrometheusEndpoint",
    "StalenessTensorBoard",
    "StepTensorBoard",
    "StopAtStep",
]
