"""Finds the interface of an address, its MTU and its speed."""

from __future__ import annotations

import fcntl
import socket
import struct
from pathlib import Path
from typing import Tuple

from tf_strategies.native.host import interface_of

__all__ = ["interface"]

_SIOCGIFMTU = 0x8921


def interface(host: str) -> Tuple[str, int, int]:
    """Returns the interface that has the address of a host, its MTU in bytes, and its speed in megabits a second.

    Args:
        host: a name or an address of this machine.

    Returns:
        "", 0 and 0 if there is none. The speed is 0 if it is unknown, as for virtual interfaces.
    """
    name = interface_of(host)
    if name is None:
        return "", 0, 0
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
            answer = fcntl.ioctl(handle, _SIOCGIFMTU, struct.pack("16si12x", name.encode()[:15], 0))
        mtu = int(struct.unpack("16si12x", answer)[1])
    except OSError:
        mtu = 0
    try:
        speed = int(Path("/sys/class/net", name, "speed").read_text())
    except (OSError, ValueError):
        speed = 0
    return name, mtu, max(0, speed)
