"""Wraps the C functions of ops/channel/c_api.h with Python types."""

from __future__ import annotations

import ctypes
import json
from typing import Sequence

from tf_strategies.errors import BootstrapError, Code
from tf_strategies.native import c_text, loader
from tf_strategies.texts import utf8
from tf_strategies.types import JsonObject

_ADDRESS_BYTES = 64 << 10


def _core() -> ctypes.CDLL:
    core = loader.core()
    for name in (
        "tfs_last_error",
        "tfs_channel_end_address",
        "tfs_channels_to",
        "tfs_channel_stats",
    ):
        getattr(core, name).restype = ctypes.c_int64
    return core


def _last_error(core: ctypes.CDLL) -> str:
    return (c_text.read(core.tfs_last_error) or b"").decode(errors="replace")


def prepare(*, host: str, net_devices: str, tls_folder: str) -> None:
    """Lets workers open channels to this process.

    Args:
        host: a text that is equal for two processes exactly when they can share memory.
        net_devices: the value of UCX_NET_DEVICES, or "" for all interfaces.
        tls_folder: the folder with the certificate of this task, for data connections of workers, or "" for no TLS.
    """
    _core().tfs_channel_prepare(utf8(host), utf8(net_devices), utf8(tls_folder))


def offer_socket(token: bytes, descriptor: int) -> None:
    """Gives this process, a server, the data connection of a worker. It owns the descriptor from then on."""
    _core().tfs_channel_offer_socket(token, ctypes.c_int64(len(token)), descriptor)


def connect_socket(descriptor: int, *, tls_folder: str, name: str, server: str, timeout: float) -> int:
    """Makes a channel of a data connection, and owns its descriptor, also on failure.

    Args:
        descriptor: of the connection.
        tls_folder: the folder with the certificate of this task, or "" for no TLS.
        name: the name of this worker, for messages.
        server: the name of the server, for messages.
        timeout: the number of seconds to wait for the server's answer.

    Returns:
        The id of the channel.

    Raises:
        BootstrapError: the server did not answer within `timeout` seconds.
    """
    peer = (descriptor, utf8(tls_folder))
    return _connected("tfs_channel_connect_socket", peer, name, server, timeout)


def open_end(*, transports: Sequence[str], net_devices: str) -> tuple[int, bytes]:
    """Opens a worker's end of a channel.

    Args:
        transports: the values of UCX_TLS to try, in this order.
        net_devices: the value of UCX_NET_DEVICES, or "" for all interfaces.

    Returns:
        The id of the end, and its transport address.

    Raises:
        BootstrapError: no transport can be opened on this host.
    """
    core = _core()
    end = ctypes.c_int64()
    if core.tfs_channel_open_end(utf8("\n".join(transports)), utf8(net_devices), ctypes.byref(end)):
        raise BootstrapError(_last_error(core))
    return end.value, c_text.read(core.tfs_channel_end_address, end, capacity=_ADDRESS_BYTES) or b""


def close_end(end: int) -> None:
    """Closes an end that did not become a channel."""
    _core().tfs_channel_close_end(ctypes.c_int64(end))


def connect(
    end: int, *, server_address: bytes, same_host: bool, name: str, server: str, timeout: float
) -> int:
    """Makes a channel from an end, which must not be used again.

    Args:
        end: the id of the end.
        server_address: the transport address of the server's end.
        same_host: whether the server can share memory with this process.
        name: the name of this worker, for messages.
        server: the name of the server, for messages.
        timeout: the number of seconds to wait for the server's answer.

    Returns:
        The id of the channel.

    Raises:
        BootstrapError: the server did not answer within `timeout` seconds.
    """
    peer = (ctypes.c_int64(end), server_address, ctypes.c_int64(len(server_address)), int(same_host))
    return _connected("tfs_channel_connect", peer, name, server, timeout)


def _connected(function: str, peer: tuple[object, ...], name: str, server: str, timeout: float) -> int:
    """Calls a function of the core that makes a channel; returns the channel's id."""
    core = _core()
    channel = ctypes.c_int64()
    names = utf8(name), utf8(server)
    if getattr(core, function)(*peer, *names, ctypes.c_double(timeout), ctypes.byref(channel)):
        raise BootstrapError(_last_error(core))
    return channel.value


def close(channel: int) -> None:
    """Closes a channel. Its operations fail."""
    _core().tfs_channel_close(ctypes.c_int64(channel))


def close_all() -> None:
    """Closes all channels of this process."""
    _core().tfs_channels_close_all()


def fail(channel: int, code: Code, message: str) -> None:
    """Fails all current and later operations on a channel."""
    _core().tfs_channel_fail(ctypes.c_int64(channel), int(code), utf8(message))


def status(channel: int) -> tuple[Code, str]:
    """Returns the reason why the channel has failed, or (Code.OK, "").

    Raises:
        KeyError: the channel is closed.
    """
    core = _core()
    code = core.tfs_channel_status(ctypes.c_int64(channel))
    if code < 0:
        raise KeyError(channel)
    return Code(code), _last_error(core) if code else ""


def channels_to(peer_name: str) -> list[int]:
    """Returns the channels of this process whose other end has this name."""
    capacity = 16
    while True:
        ids = (ctypes.c_int64 * capacity)()
        count = _core().tfs_channels_to(utf8(peer_name), ids, ctypes.c_int64(capacity))
        if count <= capacity:
            return list(ids[:count])
        capacity = count


def stats(channel: int) -> JsonObject:
    """Returns the counters of `tfs_channel_stats`, or an empty dictionary if the channel is closed."""
    text = c_text.read(_core().tfs_channel_stats, ctypes.c_int64(channel))
    return {} if text is None else json.loads(text)
