"""Two logical CPUs for all tests of this folder: TensorFlow takes no more once it has started."""

from __future__ import annotations

import pytest
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)


@pytest.fixture(scope="module")
def strategy():
    """A strategy of one worker with two replicas."""
    from tf_strategies.collective import CollectiveAllReduceStrategy

    return CollectiveAllReduceStrategy(devices=["CPU:0", "CPU:1"])


@pytest.fixture(autouse=True)
def no_global_seed() -> None:
    """Each test starts as a program does, whatever a test before it has seeded."""
    tf.random.set_seed(None)
