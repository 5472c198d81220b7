"""The messages of the control plane: JSON objects with a "type", as bytes of at most `MAX_MESSAGE_BYTES`.

member -> rank 0                                    rank 0 -> member
hello      who I am, what must agree                waiting_for  who is missing (while joining)
exchange   sequence, what, payload                  welcome      epoch: the group is complete
waiting    instance, seconds, text; or idle         refused      message, retry
report     code, message, instance, peer            gathered     sequence, first, payloads (a run of ranks)
described  instance, text, waited (seconds; -1: idle)  describe     instance
compare    topic, key, payload                      (nothing, or abort)
leave      my script has ended, why                 left         rank, why; farewell to the receiver itself
aborted    I have heard of the failure              abort        code, message
stop       training: I want to stop it              stop_where   training: where can you stop it?
can_stop   training, place                          stop_at      training, place: all stop there

After `welcome` every message of a member carries the group's epoch.
"""

from __future__ import annotations

import json
from typing import Any, Dict, NamedTuple

from tf_strategies.errors import Code

Message = Dict[str, Any]

MAX_MESSAGE_BYTES = 1 << 20
PROTOCOL = 4


class Failure(NamedTuple):
    """The reason why a group failed."""

    code: Code
    message: str


def encode(message: Message) -> bytes:
    """Returns the bytes of a message.

    Raises:
        ValueError: when it is larger than `MAX_MESSAGE_BYTES`.
    """
    data = json.dumps(message, separators=(",", ":")).encode("ascii")
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(
            f"a {message.get('type')} message has {len(data)} bytes; at most {MAX_MESSAGE_BYTES} are sent"
        )
    return data


def decode(data: bytes) -> Message:
    """Returns the message in `data`.

    Raises:
        ValueError: when it is not one.
    """
    try:
        message = json.loads(data)
    except RecursionError:
        raise ValueError("a message is nested too deep") from None
    if not isinstance(message, dict) or not isinstance(message.get("type"), str):
        raise ValueError("a message must be an object with a type")
    return message


def integer(message: Message, key: str) -> int:
    """Returns an integer field; ValueError when it is missing or something else."""
    value = message.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"the {key!r} of a {message['type']} message must be an integer")
    return value


def number(message: Message, key: str) -> float:
    """Returns a numeric field; ValueError when it is missing or something else."""
    value = message.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"the {key!r} of a {message['type']} message must be a number")
    return float(value)


def text(message: Message, key: str) -> str:
    """Returns a text field; ValueError when it is missing or something else."""
    value = message.get(key)
    if not isinstance(value, str):
        raise ValueError(f"the {key!r} of a {message['type']} message must be a text")
    return value
