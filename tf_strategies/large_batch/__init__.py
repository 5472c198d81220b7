"""Looks for the known pitfalls of large batches in a model and its data.

Example:
    findings = tfs.large_batch.check(model, data=dataset)
"""

from tf_strategies.large_batch.checks import check
from tf_strategies.large_batch.finding import Finding

__all__ = ["Finding", "check"]
