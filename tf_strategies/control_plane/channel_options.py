"""gRPC's settings for the control plane.

Keepalive: each side pings when it has heard nothing for 0.8 s, at the latest every 1.6 s, and gives the other
0.5 s less than the heartbeat timeout to answer. With 3 s, a stopped process or a cut network is noticed within about four
seconds. A killed process closes its connection and is noticed at once. gRPC answers pings without Python: a process that holds
the interpreter lock for long stays alive.
"""

from __future__ import annotations

import os
from typing import List, Tuple, Union

from tf_strategies.control_plane.messages import MAX_MESSAGE_BYTES
from tf_strategies.handshake import SEAL_BYTES

_KEEPALIVE_SECONDS = 0.8
_UNTIL_PING_SECONDS = 0.5  # since the last sign of life
_HANDSHAKE_SECONDS = 5.0
_IDLE_SECONDS = 10.0
_SPARE_CONNECTIONS = 64

Options = List[Tuple[str, Union[int, str]]]


def set_environment_defaults() -> None:
    """Quiets gRPC's log and turns its fork handlers off, unless the user chose; before gRPC is imported."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")


def _common(heartbeat_timeout: float) -> Options:
    answer_ms = int(1000 * (heartbeat_timeout - _UNTIL_PING_SECONDS))
    return [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES + SEAL_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES + SEAL_BYTES),
        ("grpc.max_metadata_size", 8192),
        ("grpc.keepalive_time_ms", int(_KEEPALIVE_SECONDS * 1000)),
        ("grpc.keepalive_timeout_ms", answer_ms),
        ("grpc.http2.ping_timeout_ms", answer_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def server_options(size: int, heartbeat_timeout: float) -> Options:
    """Returns the options for the server of a group of `size`, which notes a silent member after so many seconds.

    It accepts the pings of peers and does not share its port.
    """
    return [
        *_common(heartbeat_timeout),
        ("grpc.so_reuseport", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 500),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.server_handshake_timeout_ms", int(_HANDSHAKE_SECONDS * 1000)),
        ("grpc.max_connection_idle_ms", int(_IDLE_SECONDS * 1000)),  # a stranger that calls nothing
        ("grpc.max_allowed_incoming_connections", 2 * size + _SPARE_CONNECTIONS),
    ]


def member_options(heartbeat_timeout: float) -> Options:
    """Returns the options for a member's channel: its own direct connection to rank 0, lost after so many silent seconds."""
    return [
        *_common(heartbeat_timeout),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
    ]
