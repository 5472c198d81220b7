"""Chooses where gradients are added up between workers: on their GPU, or on the host."""

from __future__ import annotations

from typing import Sequence

import tensorflow as tf

from tf_strategies.collective.exchange.sparse_rows import HOST

__all__ = ["device_of_pack", "is_gpu"]

_ON_GPUS = (tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int64)


def device_of_pack(tensors: Sequence[tf.Tensor], gpu: str) -> str:
    """Returns the device on which an all-reduce of tensors of one dtype is placed.

    Args:
        tensors: the tensors. Those whose device TensorFlow has not chosen yet count as being on `gpu`.
        gpu: the GPU of this worker on which all-reduces can run, or "".
    """
    if not gpu or any(tensor.dtype not in _ON_GPUS for tensor in tensors):
        return HOST
    places = [tensor.device or gpu for tensor in tensors]
    return places[0] if all(is_gpu(place) for place in places) else HOST


def is_gpu(device: str) -> bool:
    """Returns whether the name of a device is that of a GPU."""
    return tf.DeviceSpec.from_string(device).device_type == "GPU"
