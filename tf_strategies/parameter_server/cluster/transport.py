"""Carries tensors between a worker and the servers."""

from __future__ import annotations

from typing import Dict, Optional, Sequence, Tuple

import tensorflow as tf
from absl import logging

from tf_strategies.errors import BootstrapError
from tf_strategies.native.channel import Channel
from tf_strategies.parameter_server.cluster.protection import Protection

__all__ = ["ChannelTransport", "Transport", "open_channels", "transport_of"]

_LARGE_BYTES = 256 << 10  # the size from which channels are faster, as measured (benchmarks/NOTES.md)


class Transport:
    """Carries tensors by TensorFlow's gRPC: an operation gets its inputs from other devices.

    Args:
        device: where this worker computes.
    """

    def __init__(self, device: str) -> None:
        self.device = device

    def pull(self, tensor: tf.Tensor, server: str) -> tf.Tensor:
        """Returns a server's tensor on this worker."""
        del server
        with tf.device(self.device):
            return tf.identity(tensor)

    def push(self, tensor: tf.Tensor, server: str) -> tf.Tensor:
        """Returns this worker's tensor on a server."""
        with tf.device(server):
            return tf.identity(tensor)

    def fail(self, reason: str) -> None:
        """Ends all waits for tensors of a lost server. With gRPC, TensorFlow ends them itself."""

    def renew(self, channels: Dict[str, Channel]) -> None:
        """Takes new channels to the servers, after one was lost. With gRPC there are none."""
        del channels

    def close(self) -> None:
        """Closes the transport. With gRPC there is nothing to close."""


class ChannelTransport(Transport):
    """Carries large tensors by channels, within functions.

    Small tensors, and tensors outside of functions, go by gRPC.

    Args:
        device: where this worker computes.
        channels: the channels by device of the server.
    """

    def __init__(self, device: str, channels: Dict[str, Channel]) -> None:
        super().__init__(device)
        self._channels = channels

    def pull(self, tensor: tf.Tensor, server: str) -> tf.Tensor:
        channel = self._channel_for(tensor, server)
        return super().pull(tensor, server) if channel is None else channel.pull(tensor)

    def push(self, tensor: tf.Tensor, server: str) -> tf.Tensor:
        channel = self._channel_for(tensor, server)
        return super().push(tensor, server) if channel is None else channel.push(tensor)

    def _channel_for(self, tensor: tf.Tensor, server: str) -> Optional[Channel]:
        """Returns the channel if it is faster than gRPC. After a server was lost there may be none any more."""
        return self._channels.get(server) if _is_large(tensor) else None

    def fail(self, reason: str) -> None:
        for channel in self._channels.values():
            channel.fail(reason)

    def renew(self, channels: Dict[str, Channel]) -> None:
        self.close()
        self._channels = channels

    def close(self) -> None:
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


def transport_of(device: str, channels: Optional[Dict[str, Channel]]) -> Transport:
    """Returns the transport with these channels, by device; None: without channels."""
    return Transport(device) if channels is None else ChannelTransport(device, channels)


def open_channels(
    servers: Sequence[Tuple[str, str, str]],
    *,
    own: str,
    my_host: str,
    transport: str,
    timeout: float,
    protection: Protection,
) -> Optional[Dict[str, Channel]]:
    """Opens the channels of the transport that `ParameterServerOptions.transport` names.

    Args:
        servers: (name, address, device) of each.
        own: the name of this worker in messages.
        my_host: the host of this worker's address.
        transport: "auto", "shared_memory", "tcp" or "grpc".
        timeout: the number of seconds that a tensor may take.
        protection: of this task.

    Returns:
        The channels by device of the server; None if TensorFlow's gRPC carries everything.

    Raises:
        BootstrapError: a channel cannot be opened, and `transport` is not "auto".
    """
    if transport == "grpc":
        return None
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
        return None
    return channels
