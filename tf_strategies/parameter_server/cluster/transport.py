"""Carries tensors between a worker and the servers."""

from __future__ import annotations

from typing import Dict, Optional, Sequence, Tuple

import tensorflow as tf
from absl import logging

from tf_strategies.errors import BootstrapError
from tf_strategies.native.channel import Channel
from tf_strategies.parameter_server.cluster.protection import Protection

__all__ = ["Transport", "open_channels"]

_LARGE_BYTES = 256 << 10  # the size from which channels are faster, as measured (benchmarks/NOTES.md)


class Transport:
    """Carries large tensors by channels, within functions, and all others by TensorFlow's gRPC.

    Small tensors, and tensors outside of functions, go by gRPC: an operation gets its inputs from other devices.

    Args:
        device: where this worker computes.
        channels: the channels by device of the server; none if gRPC carries everything.
    """

    def __init__(self, device: str, channels: Optional[Dict[str, Channel]] = None) -> None:
        self.device = device
        self._channels = channels or {}

    def pull(self, tensor: tf.Tensor, server: str) -> tf.Tensor:
        """Returns a server's tensor on this worker."""
        if server in self._channels and _is_large(tensor):
            return self._channels[server].pull(tensor)
        with tf.device(self.device):
            return tf.identity(tensor)

    def push(self, tensor: tf.Tensor, server: str) -> tf.Tensor:
        """Returns this worker's tensor on a server."""
        if server in self._channels and _is_large(tensor):
            return self._channels[server].push(tensor)
        with tf.device(server):
            return tf.identity(tensor)

    def fail(self, reason: str) -> None:
        """Ends all waits for tensors of a lost server. With gRPC, TensorFlow ends them itself."""
        for channel in self._channels.values():
            channel.fail(reason)

    def renew(self, channels: Dict[str, Channel]) -> None:
        """Takes new channels to the servers, after one was lost."""
        self.close()
        self._channels = channels

    def close(self) -> None:
        """Closes the channels."""
        for channel in self._channels.values():
            channel.close()


def _is_large(tensor: tf.Tensor) -> bool:
    """Returns True if a channel is faster than gRPC for the tensor.

    Rows and compressed gradients count as large: their size is not known while tracing.

    It is not called outside of functions, where TensorFlow would wait for the shape; TensorFlow 2.15 blocks
    all Python threads meanwhile.
    """
    if tf.executing_eagerly():
        return False
    elements = tensor.shape.num_elements()
    if elements is None:
        return tensor.shape.rank is None or tensor.shape.rank > 1 or tensor.dtype == tf.uint8
    return elements * tensor.dtype.size >= _LARGE_BYTES


def open_channels(
    servers: Sequence[Tuple[str, str, str]],
    *,
    own: str,
    my_host: str,
    transport: str,
    timeout: float,
    protection: Protection,
) -> Dict[str, Channel]:
    """Opens the channels of the transport that `ParameterServerOptions.transport` names.

    Args:
        servers: (name, address, device) of each.
        own: the name of this worker in messages.
        my_host: the host of this worker's address.
        transport: "auto", "shared_memory", "tcp" or "grpc".
        timeout: the number of seconds that a tensor may take.
        protection: of this task.

    Returns:
        The channels by device of the server; none if TensorFlow's gRPC carries everything.

    Raises:
        BootstrapError: a channel cannot be opened, and `transport` is not "auto".
    """
    if transport == "grpc":
        return {}
    channels: Dict[str, Channel] = {}
    try:
        for name, address, place in servers:
            channels[place] = Channel.connect(
                place,
                name=own,
                peer=name,
                transport=transport,
                timeout=timeout,
                my_host=my_host,
                data=protection.data_connection(own, name, address),
            )
    except BootstrapError as error:
        for channel in channels.values():
            channel.close()
        if transport != "auto":
            raise
        logging.warning("%s; gRPC, which is slower, carries variables and gradients instead", error)
        return {}
    return channels
