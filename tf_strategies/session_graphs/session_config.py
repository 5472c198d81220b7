"""Configures sessions for the devices of this process."""

from __future__ import annotations

from typing import Sequence

import tensorflow as tf

__all__ = ["show_devices"]


def show_devices(config: tf.compat.v1.ConfigProto, devices: Sequence[str]) -> None:
    """Makes a strategy's devices visible to a session under the same names.

    By default a session has one CPU and all GPUs of the host. It ignores `tf.config`, and TensorFlow fails if
    the two number GPUs differently.

    Args:
        config: the configuration, which is changed in place. GPUs that it already lists are kept.
        devices: the names of the strategy's devices.
    """
    processors = [device for device in devices if "CPU" in device]
    config.device_count["CPU"] = max(config.device_count["CPU"], len(processors), 1)
    visible = tf.config.get_visible_devices("GPU")
    if not visible or config.gpu_options.visible_device_list:
        return
    numbers = [str(i) for i, gpu in enumerate(tf.config.list_physical_devices("GPU")) if gpu in visible]
    config.gpu_options.visible_device_list = ",".join(numbers)
    if all(tf.config.experimental.get_memory_growth(gpu) for gpu in visible):
        config.gpu_options.allow_growth = True
