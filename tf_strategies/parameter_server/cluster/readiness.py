"""Makes a server ready for workers by connecting it to itself.

On its first connection a TensorFlow server creates state that all later connections use. If two first
connections come at the same time, one of them uses state that the other has deleted; TensorFlow 2.21 then
dies of a segmentation fault. So the server makes the first connection itself. It creates a context with a
fixed number, and workers ask for this context before they connect. The requests are those of TensorFlow's
EagerService, whose messages are not public. This file encodes the fields it needs, with the numbers of
tensorflow/core/protobuf/eager_service.proto.
"""

from __future__ import annotations

import struct

import grpc
import tensorflow as tf

__all__ = ["ASK", "QUESTION", "make_ready"]

_CONTEXT = 0x7F5_0000_0001
_FOR_EVER_SECONDS = 10**9
_ANSWER_SECONDS = 30.0
_VARINT, _FIXED64, _BYTES = 0, 1, 2


def _varint(number: int) -> bytes:
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def _tag(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _message(field: int, content: bytes) -> bytes:
    return _tag(field, _BYTES) + _varint(len(content)) + content


def _context_id(field: int) -> bytes:
    return _tag(field, _FIXED64) + struct.pack("<Q", _CONTEXT)


ASK = "/tensorflow.eager.EagerService/KeepAlive"
QUESTION = _context_id(1)


def make_ready(server: tf.distribute.Server, address: str, *, through_proxy: bool) -> None:
    """Makes the first connection to the server of this process.

    Args:
        server: the server.
        address: "host:port" of this task.
        through_proxy: whether the address is that of a gateway.

    Raises:
        grpc.RpcError: the server does not answer at its address.
    """
    versions = _tag(1, _VARINT) + _varint(tf.version.GRAPH_DEF_VERSION)
    request = b"".join(
        (
            _message(1, _definition(server)),
            _tag(3, _VARINT) + _varint(_FOR_EVER_SECONDS),
            _message(4, versions),
            _context_id(7),
        )
    )
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", int(through_proxy))]) as channel:
        create = channel.unary_unary("/tensorflow.eager.EagerService/CreateContext")
        create(request, timeout=_ANSWER_SECONDS)


def _definition(server: tf.distribute.Server) -> bytes:
    return server.server_def.SerializeToString()
