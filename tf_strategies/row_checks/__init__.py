"""Finds losses and numbers that are no means over the rows of a batch, so that no mean over replicas is that of one process."""

from tf_strategies.row_checks.loss_means import LossMeans
from tf_strategies.row_checks.shared_tensors import SharedTensors

__all__ = ["LossMeans", "SharedTensors"]
