"""A worker's strategy on logical CPUs, and what must be equal on all workers."""

from __future__ import annotations

from typing import Any, Iterable

import numpy as np
import tensorflow as tf

import tf_strategies as tfs

__all__ = ["on_cpus", "require_equal_everywhere"]


def on_cpus(replicas: int, logical: int | None = None, **arguments: Any) -> tfs.CollectiveAllReduceStrategy:
    """The strategy with so many replicas in this process, each on a CPU of its own, of `logical` that there are."""
    count = replicas if logical is None else logical
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * count
    )
    return tfs.CollectiveAllReduceStrategy(devices=[f"CPU:{index}" for index in range(replicas)], **arguments)


def require_equal_everywhere(strategy: Any, numbers: Iterable[Any], finite: bool = True) -> None:
    """Asserts the same bits on all workers, and on all replicas of this one where these are variables; a collective.

    Args:
        numbers: variables, tensors, arrays and numbers.
        finite: whether they may not be infinite or NaN.
    """
    parts = [_of_all_replicas(strategy, each) for each in numbers]
    flat = np.concatenate([np.ravel(part).astype("float64") for part in parts])
    gathered = strategy.gather(tf.constant(flat[np.newaxis]), axis=0).numpy()
    assert gathered.shape[0] == strategy.size
    assert not finite or np.isfinite(gathered).all(), gathered
    np.testing.assert_array_equal(gathered, np.repeat(gathered[:1], strategy.size, axis=0))


def _of_all_replicas(strategy: Any, value: Any) -> np.ndarray:
    variable = value if isinstance(value, tf.Variable) else getattr(value, "value", value)
    if isinstance(variable, tf.Variable):
        first, *others = [np.asarray(part) for part in strategy.experimental_local_results(variable)]
        for other in others:
            np.testing.assert_array_equal(other, first, err_msg=variable.name)
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)
