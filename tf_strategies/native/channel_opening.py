"""Opens the channel from a worker to a parameter server: by UCX, or over a connection that the worker has opened."""

from __future__ import annotations

import contextlib
import socket
from typing import NamedTuple, Sequence

import tensorflow as tf

from tf_strategies.errors import BootstrapError
from tf_strategies.native import channel_core as core
from tf_strategies.native import host, loader

__all__ = ["DataConnection", "open_channel"]


class DataConnection(NamedTuple):
    """Describes a connection that a worker has opened to a server, for a channel.

    Attributes:
        socket: is connected, and its TLS has not started. The channel takes it over.
        token: identifies the connection on the server.
        tls_folder: the folder with the certificate of this task; "" for no TLS.
    """

    socket: socket.socket
    token: bytes
    tls_folder: str


def open_channel(
    server_device: str,
    *,
    name: str,
    peer: str,
    transport: str,
    timeout: float,
    my_host: str,
    data: DataConnection | None,
) -> tuple[int, int]:
    """Opens a channel, and returns its ids here and there. The arguments and errors are those of `Channel.connect`."""
    opening = _Opening(name, peer, timeout)
    with data.socket if data is not None else contextlib.nullcontext():
        opening.open_end(transport, my_host, beside=data is not None)
        there, server_address, same_host = opening.ask_server(
            server_device, b"" if data is None else data.token
        )
        try:
            if data is None or same_host:
                return opening.connect(server_address, same_host), there
            here = core.connect_socket(
                data.socket.detach(), tls_folder=data.tls_folder, name=name, server=peer, timeout=timeout
            )
            return here, there
        except BootstrapError:
            with tf.init_scope(), tf.device(server_device):
                loader.library().tf_strategies_channel_close(channel=there)
            raise
        finally:
            opening.close_end()


class _Opening:
    """Opens the channel from a worker to a server.

    Args:
        name: this worker, for messages.
        peer: the server, for messages.
        timeout: the number of seconds to wait for the server's answer.
    """

    def __init__(self, name: str, peer: str, timeout: float) -> None:
        self._name, self._peer, self._timeout = name, peer, timeout
        self._transports: Sequence[str] = ()
        self._end: int | None = None
        self._address = b""

    def open_end(self, transport: str, my_host: str, *, beside: bool) -> None:
        """Opens this worker's end with the first transport that works.

        Beside a data connection it is for shared memory alone, and there is no end if that cannot be opened.
        """
        transports = host.transports("shared_memory" if beside and transport == "auto" else transport)
        if beside and transport == "tcp":
            return
        try:
            self._end, self._address = core.open_end(
                transports=transports, net_devices=host.net_devices(my_host) if my_host else ""
            )
            self._transports = transports
        except BootstrapError as error:
            if beside and transport == "auto":
                return
            raise BootstrapError(f"{self._name} cannot open a channel to {self._peer}: {error}") from error

    def ask_server(self, device: str, token: bytes) -> tuple[int, bytes, bool]:
        """Lets the server open its end.

        Returns:
            The id of the channel there, the address of the server's end, and whether the two share memory.
        """
        try:
            with tf.init_scope(), tf.device(device):
                there, address, same_host = loader.library().tf_strategies_channel_accept(
                    address=self._address,
                    host=host.identity(),
                    worker=self._name,
                    server=self._peer,
                    transports=tf.constant(list(self._transports), tf.string, [len(self._transports)]),
                    token=token,
                )
            return int(there.numpy()), address.numpy(), bool(same_host.numpy())
        except (
            tf.errors.FailedPreconditionError,
            tf.errors.InvalidArgumentError,
            tf.errors.InternalError,
            tf.errors.DeadlineExceededError,
        ) as error:
            self.close_end()
            raise BootstrapError(
                f"{self._peer} cannot open a channel to {self._name}: {error.message}"
            ) from error
        except BaseException:
            self.close_end()
            raise

    def connect(self, server_address: bytes, same_host: bool) -> int:
        """Connects the two ends, and returns the id of the channel here."""
        if self._end is None:
            raise BootstrapError(f"{self._name} has opened no end of a channel to {self._peer}")
        end, self._end = self._end, None
        return core.connect(
            end,
            server_address=server_address,
            same_host=same_host,
            name=self._name,
            server=self._peer,
            timeout=self._timeout,
        )

    def close_end(self) -> None:
        """Closes this worker's end, if there is one that did not become a channel."""
        if self._end is not None:
            core.close_end(self._end)
            self._end = None
