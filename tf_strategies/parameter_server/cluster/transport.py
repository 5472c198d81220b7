"""Carries tensors between a worker and the servers."""

from __future__ import annotations

from typing import Dict, Sequence, Tuple

import tensorflow as tf
from absl import logging

from tf_strategies.errors import BootstrapError
from tf_strategies.native.channel import Channel

__all__ = ["ChannelTransport", "Transport", "connect_transport"]

_LARGE_BYTES = 256 << 10  # from which channels are faster, as measured (benchmarks/NOTES.md)


class Transport:
    """TensorFlow's own gRPC: an operation that needs a tensor of another device gets it from there.

    Args:
        device: where this worker computes.
    """

    def __init__(self, device: str) -> None:
        self.device = device

    def pull(self, tensor: tf.Tensor, server: str) -> tf.Tensor:
        """Returns a tensor of a server, on this worker."""
        del server
        with tf.device(self.device):
            return tf.identity(tensor)

    def push(self, tensor: tf.Tensor, server: str) -> tf.Tensor:
        """Returns a tensor of this worker, on a server."""
        with tf.device(server):
            return tf.identity(tensor)

    def fail(self, reason: str) -> None:
        """Ends waits for tensors of a lost server. Here TensorFlow ends them by itself."""

    def close(self) -> None:
        """Does nothing: nothing is carried any more."""


class ChannelTransport(Transport):
    """A channel to each server for large tensors, within functions; for others, and outside of functions, gRPC.

    Args:
        device: where this worker computes.
        channels: by the server's device.
    """

    def __init__(self, device: str, channels: Dict[str, Channel]) -> None:
        super().__init__(device)
        self._channels = channels

    def pull(self, tensor: tf.Tensor, server: str) -> tf.Tensor:
        return self._channels[server].pull(tensor) if _is_large(tensor) else super().pull(tensor, server)

    def push(self, tensor: tf.Tensor, server: str) -> tf.Tensor:
        return self._channels[server].push(tensor) if _is_large(tensor) else super().push(tensor, server)

    def fail(self, reason: str) -> None:
        for channel in self._channels.values():
            channel.fail(reason)

    def close(self) -> None:
        for channel in self._channels.values():
            channel.close()


def _is_large(tensor: tf.Tensor) -> bool:
    """Returns True if a channel is quicker.

    Rows and compressed gradients count as large: their size is not known while tracing.

    Not asked of a tensor outside of functions: TensorFlow would wait for its shape, on 2.15 with all of Python.
    """
    if tf.executing_eagerly():
        return False
    elements = tensor.shape.num_elements()
    if elements is None:
        return tensor.shape.rank is None or tensor.shape.rank > 1 or tensor.dtype == tf.uint8
    return elements * tensor.dtype.size >= _LARGE_BYTES


def connect_transport(
    device: str, servers: Sequence[Tuple[str, str]], *, own: str, my_host: str, transport: str, timeout: float
) -> Transport:
    """Opens what `ParameterServerOptions.transport` asks for.

    Args:
        device: where this worker computes.
        servers: (name, device) of each.
        own: how messages name this worker.
        my_host: of its address.
        transport: "auto", "shared_memory", "tcp" or "grpc".
        timeout: seconds a tensor may take.

    Raises:
        BootstrapError: a channel cannot be opened, and `transport` is not "auto".
    """
    if transport == "grpc":
        return Transport(device)
    channels: Dict[str, Channel] = {}
    try:
        for name, place in servers:
            channels[place] = Channel.connect(
                place, name=own, peer=name, transport=transport, timeout=timeout, my_host=my_host
            )
    except BootstrapError as error:
        for channel in channels.values():
            channel.close()
        if transport != "auto":
            raise
        logging.warning("%s; variables and gradients are carried by gRPC, which is slower", error)
        return Transport(device)
    return ChannelTransport(device, channels)
