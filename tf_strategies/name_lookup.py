"""Looks up the addresses of hosts, and remembers them: when workers look for one another again, a name server may not answer."""

from __future__ import annotations

import concurrent.futures
import os
import socket
import threading
from typing import Union, cast

__all__ = ["look_up"]

_FRESH_SECONDS = 1.0  # for which a known address waits for a new one

Place = Union[tuple[str, int], tuple[str, int, int, int]]
Addresses = list[tuple[socket.AddressFamily, socket.SocketKind, int, str, Place]]  # of socket.getaddrinfo
_Lookup = concurrent.futures.Future[Addresses]

_lock = threading.Lock()
_known: dict[str, Addresses] = {}
_running: dict[str, _Lookup] = {}


def look_up(host: str, port: int) -> Addresses:
    """Returns what `socket.getaddrinfo` returns for a stream.

    The first lookup of a host takes as long as the name server takes. For a later one, a new answer that comes within a second is
    preferred, because a container that starts again may have another address; otherwise it is the last answer.

    Args:
        host: a name or an address.
        port: the port.

    Raises:
        OSError: the host cannot be resolved now, and never was.
    """
    return [
        (family, kind, protocol, name, cast(Place, (place[0], port, *place[2:])))
        for family, kind, protocol, name, place in _addresses_of(host)
    ]


def _addresses_of(host: str) -> Addresses:
    with _lock:
        known, lookup = _known.get(host), _running.get(host)
        if lookup is None:
            lookup = concurrent.futures.Future()
            try:
                threading.Thread(
                    target=_ask, args=(host, lookup), name="tf_strategies name lookup", daemon=True
                ).start()
            except RuntimeError as error:
                raise OSError(f"no thread can be started to look up {host}: {error}") from error
            _running[host] = lookup
    try:
        return lookup.result(None if known is None else _FRESH_SECONDS)
    except (OSError, concurrent.futures.TimeoutError):
        if known is None:
            raise
        return known


def _forget_lookups() -> None:
    """Lets a forked child, which has no threads of its parent, begin its own lookups."""
    global _lock
    _lock = threading.Lock()
    _running.clear()


os.register_at_fork(after_in_child=_forget_lookups)


def _ask(host: str, lookup: _Lookup) -> None:
    try:
        found: Addresses | Exception = cast(Addresses, socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM))
    except Exception as error:
        found = error
    with _lock:
        _running.pop(host, None)
        if not isinstance(found, Exception):
            _known[host] = found
    if isinstance(found, Exception):
        lookup.set_exception(found)
    else:
        lookup.set_result(found)
