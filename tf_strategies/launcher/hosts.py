"""Finds out which of the given hosts is this one."""

from __future__ import annotations

import socket
from typing import Sequence


def find_this_host(hosts: Sequence[str]) -> str:
    """Returns the host whose name or address belongs to this machine.

    Raises:
        ValueError: no host, or more than one, belongs to this machine.
    """
    mine = [host for host in hosts if is_here(host)]
    if len(mine) == 1:
        return mine[0]
    found = "none of" if not mine else f"more than one ({', '.join(mine)}) of"
    raise ValueError(f"{found} the hosts {','.join(hosts)} is this machine; name it with --this-host")


def is_here(host: str) -> bool:
    """Returns True if an address of the host can be bound on this machine."""
    if host.lower() in (socket.gethostname().lower(), socket.getfqdn().lower()):
        return True
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # the latter for a name such as a..b
        return False
    return any(_can_bind(family, place) for family, _, _, _, place in found)


def _can_bind(family: int, place: tuple[object, ...]) -> bool:
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(place)
    except OSError:
        return False
    return True
