"""Finds the pitfalls that a dataset shows: its batch size, and whether the workers share one shuffle."""

from __future__ import annotations

from typing import List, Optional

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.large_batch.finding import Finding

__all__ = ["batch_size_of", "find_own_shuffles"]

_Policy = tf.data.experimental.AutoShardPolicy


def batch_size_of(data: tf.data.Dataset) -> Optional[int]:
    """Returns the number of rows of a batch, or None if the dataset was built without one."""
    found = int(compat.compute_batch_size(data))
    return found if found > 0 else None


def find_own_shuffles(data: tf.data.Dataset) -> Optional[Finding]:
    """Returns the finding for a dataset of several workers that do not share one order of the rows."""
    problem = _problem(compat.shuffles_and_shards(data), _policy(data))
    if not problem:
        return None
    return Finding(
        "a shuffle for each worker",
        ("data",),
        problem,
        "Shuffle all rows with one seed on all workers, and split them after that: give shuffle a seed and leave the rest to the "
        "strategy, or call shard after shuffle.",
        'Goyal et al. 2017, "Accurate, large minibatch SGD", §3, remark 4',
    )


def _problem(steps: List[str], policy: _Policy) -> str:
    """Returns what is wrong, "" for nothing. The last step of the pipeline comes first."""
    if policy == _Policy.OFF:
        if "shard" not in steps:
            return "Each worker shuffles data of its own." if steps else ""
        split = steps.index("shard")
        if "unseeded shuffle" in steps[split:]:
            return "Each worker takes its share of another order, so rows are missing and others come twice."
        own = [step for step in steps[:split] if step != "shard"]
        return "Each worker shuffles only its own share." if own and "shuffle" not in steps[split:] else ""
    if "unseeded shuffle" in steps and (policy == _Policy.DATA or "shuffle" not in steps):
        return "The shuffle has no seed, so the order differs between workers."
    return ""


def _policy(data: tf.data.Dataset) -> _Policy:
    return data.options().experimental_distribute.auto_shard_policy
