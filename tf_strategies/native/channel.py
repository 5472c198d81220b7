"""Channels carry tensors between a worker and a parameter server, faster than TensorFlow's gRPC.

A tf.function of the worker moves a tensor with a pair of operations, one on each device. Both run in the same
call of the function, and are matched by channel, key, step and loop iteration.

Example:
    channel = Channel.connect("/job:ps/task:0", name="worker 0 (a:1)", peer="ps 0 (b:2)")

    @tf.function
    def step():
        with tf.device("/job:ps/task:0"):
            value = variable.read_value()
        local = channel.pull(value)
        update = channel.push(gradient_of(local))
        with tf.device("/job:ps/task:0"):
            variable.assign_sub(update)
"""

from __future__ import annotations

import functools
import threading
from typing import NamedTuple

import tensorflow as tf

from tf_strategies import at_exit
from tf_strategies._tf import compat
from tf_strategies.errors import Code
from tf_strategies.native import channel_core as core
from tf_strategies.native import host, loader
from tf_strategies.native.channel_opening import DataConnection, open_channel
from tf_strategies.types import JsonObject

_MOST_KEYS = 1 << 32


def prepare(my_host: str = "", tls_folder: str = "") -> None:
    """Lets workers open channels to this process, which is a server. Call it once, before the first worker connects.

    Args:
        my_host: the host in this server's address of TF_CONFIG, whose network interface the channels use; "" for all.
        tls_folder: the folder with the certificate of this task, for data connections of workers; "" for no TLS.
    """
    _close_at_exit()
    core.prepare(
        host=host.identity(),
        net_devices=host.net_devices(my_host) if my_host else "",
        tls_folder=tls_folder,
    )


def offer_data_connection(token: bytes, descriptor: int) -> None:
    """Gives this process, which is a server, a connection that a worker has opened for a channel.

    Args:
        token: identifies the connection.
        descriptor: of the connection. The channel owns it.
    """
    core.offer_socket(token, descriptor)


def channels_to(worker: str) -> list[int]:
    """Returns the ids of this server's channels to a worker.

    Args:
        worker: the `name` that the worker gave to `Channel.connect`.
    """
    return core.channels_to(worker)


def fail_channels_to(worker: str, reason: str) -> None:
    """Fails all operations on this server that wait for a worker, with UnavailableError and the reason.

    Args:
        worker: as for `channels_to`.
        reason: the reason, in one line.
    """
    for channel in core.channels_to(worker):
        core.fail(channel, Code.UNAVAILABLE, reason)


def close_channels_to(worker: str) -> None:
    """Closes this server's channels to a worker that no longer uses them, and frees their memory.

    Args:
        worker: as for `channels_to`.
    """
    for channel in core.channels_to(worker):
        core.close(channel)


class _Side(NamedTuple):
    """Describes one end of a channel.

    Attributes:
        channel: the id of the channel in its process.
        device: the device of its operations.
    """

    channel: int
    device: str


class Channel:
    """A channel from a worker to a server. It is made by `connect` and ended by `close`. It is thread-safe.

    Args:
        worker: the worker's end.
        server: the server's end.
        peer: the name of the server, for messages.
        timeout: the number of seconds to wait for each transfer.

    Attributes:
        peer: the name of the server, for messages.
    """

    def __init__(self, worker: _Side, server: _Side, peer: str, timeout: float) -> None:
        self._worker = worker
        self._server = server
        self.peer = peer
        self._timeout = timeout
        self._lock = threading.Lock()
        self._next_key = 0

    @classmethod
    def connect(
        cls,
        server_device: str,
        *,
        name: str,
        peer: str,
        transport: str = "auto",
        timeout: float = 600.0,
        my_host: str = "",
        data: DataConnection | None = None,
    ) -> Channel:
        """Opens a channel to the server with this device. The server must have called `prepare`.

        Args:
            server_device: "/job:ps/task:1".
            name: this worker, for messages and for the server to find its channels: "worker 0 (10.0.0.2:2222)".
            peer: the server, for messages: "ps 1 (10.0.0.9:2222)".
            transport: as in CommunicationOptions: "auto", "shared_memory" or "tcp".
            timeout: the number of seconds to wait for the server's answer, and later for each transfer.
            my_host: the host in this worker's address of TF_CONFIG, whose network interface is used; "" for all.
            data: a connection to the server, which is used if the two cannot share memory. Without it UCX connects
                the two.

        Raises:
            BootstrapError: no transport can be opened on one of the two hosts, or the server does not answer
                over it.
            tf.errors.OpError: TensorFlow cannot reach the server.
        """
        _close_at_exit()
        here, there = open_channel(
            server_device,
            name=name,
            peer=peer,
            transport=transport,
            timeout=timeout,
            my_host=my_host,
            data=data,
        )
        return cls(_Side(here, _local_cpu()), _Side(there, server_device), peer, timeout)

    def pull(
        self, tensor: tf.Tensor, *, name: str = "", key: int | None = None, timeout: float | None = None
    ) -> tf.Tensor:
        """Moves a tensor from the server's device to this worker's CPU.

        Call it within a tf.function. In eager code TensorFlow's gRPC carries the tensor, because the two
        operations would run one after the other.

        Args:
            tensor: a tensor on the server's device, of any dtype of fixed size and any shape, known while
                tracing or not.
            name: the name of the tensor in messages.
            key: identifies the pair of operations on this channel. The default is the next unused key.
            timeout: the number of seconds to wait. The default is the channel's.

        Returns:
            The tensor on this worker's CPU.

        Raises:
            tf.errors.UnavailableError: when the function runs: `fail` was called, because the server is lost.
            tf.errors.DeadlineExceededError: when the function runs: the tensor did not arrive in time.
            tf.errors.AbortedError: when the function runs: the channel was closed.
        """
        return self._move(tensor, "pull", name, key, timeout, self._server, self._worker)

    def push(
        self, tensor: tf.Tensor, *, name: str = "", key: int | None = None, timeout: float | None = None
    ) -> tf.Tensor:
        """Moves a tensor from this worker to the server's device. The arguments are those of `pull`."""
        return self._move(tensor, "push", name, key, timeout, self._worker, self._server)

    def fail(self, reason: str) -> None:
        """Fails all current and later operations on this end, with UnavailableError and the reason."""
        core.fail(self._worker.channel, Code.UNAVAILABLE, reason)

    def failure(self) -> str | None:
        """Returns the reason why the channel has failed, or None."""
        try:
            code, message = core.status(self._worker.channel)
        except KeyError:
            return "it was closed"
        return message if code else None

    def stats(self) -> JsonObject:
        """Returns the counters of this end and its transport; see `tfs_channel_stats` in ops/channel/c_api.h."""
        return core.stats(self._worker.channel)

    def close(self) -> None:
        """Closes the channel on both sides. Waiting and later operations fail. It may be called again."""
        core.close(self._worker.channel)

    def _move(
        self,
        tensor: tf.Tensor,
        what: str,
        name: str,
        key: int | None,
        timeout: float | None,
        source: _Side,
        target: _Side,
    ) -> tf.Tensor:
        if tf.executing_eagerly():
            with tf.device(target.device):
                return tf.identity(tensor)
        tensor = tf.convert_to_tensor(tensor)
        attributes = {
            "key": self._key(key),
            "label": f"{what} '{name or tensor.op.name}' ({self.peer})",
            "timeout": self._timeout if timeout is None else timeout,
        }
        ops = loader.library()
        with tf.device(source.device):
            send = ops.tf_strategies_channel_send(tensor=tensor, channel=source.channel, **attributes)
        with tf.device(target.device):
            received = ops.tf_strategies_channel_receive(
                T=tensor.dtype, shape=tensor.shape, channel=target.channel, **attributes
            )
            if compat.run_independently(send) and compat.run_independently(received.op):
                return received
            with tf.control_dependencies([send]):
                return tf.identity(received)

    def _key(self, key: int | None) -> int:
        with self._lock:
            if key is None:
                key = self._next_key
            if not 0 <= key < _MOST_KEYS:
                raise ValueError(f"key must be in [0, {_MOST_KEYS}); got {key}")
            self._next_key = max(self._next_key, key + 1)
            return key


@functools.cache
def _close_at_exit() -> None:
    """Tells the other ends that this process ends, and stops the threads of the channels."""
    at_exit.register(core.close_all)


def _local_cpu() -> str:
    """Returns the full name of this process's CPU device, in any job."""
    with tf.init_scope(), tf.device(None), tf.device("/device:CPU:0"):
        return tf.zeros([]).device
