"""Resolves the host names of TF_CONFIG."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from typing import Dict, Iterable, List, Tuple

from tf_strategies.doctor.records import Resolution

__all__ = ["RESOLVE_SECONDS", "Place", "places_of", "resolve_all"]

RESOLVE_SECONDS = 5.0
Place = Tuple[socket.AddressFamily, Tuple[object, ...]]  # the family, and an address of a socket


def places_of(host: str, port: int) -> List[Place]:
    """Returns (family, socket address) of each address of a host, in the order in which they are to be tried.

    Raises:
        OSError: the name does not resolve.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((family, place) for family, _, _, _, place in found))


def resolve_all(hosts: Iterable[str]) -> Dict[str, Resolution]:
    """Returns what each host name resolves to, after some seconds at most."""
    listed = list(dict.fromkeys(hosts))
    answers: queue.SimpleQueue[Tuple[str, Resolution]] = queue.SimpleQueue()
    for host in listed:
        # A thread that still waits for an answer does not keep the process.
        threading.Thread(target=_answer, args=(host, answers), daemon=True).start()
    found = {
        host: Resolution([], f"no answer within {RESOLVE_SECONDS:g} s", RESOLVE_SECONDS) for host in listed
    }
    end = time.monotonic() + RESOLVE_SECONDS
    with contextlib.suppress(queue.Empty):
        for _ in listed:
            host, resolution = answers.get(timeout=max(0.0, end - time.monotonic()))
            found[host] = resolution
    return found


def _answer(host: str, answers: queue.SimpleQueue[Tuple[str, Resolution]]) -> None:
    answers.put((host, _resolve(host)))


def _resolve(host: str) -> Resolution:
    start = time.monotonic()
    try:
        found = sorted({str(place[0]) for _, place in places_of(host, 0)})
        return Resolution(found, "", time.monotonic() - start)
    except OSError as error:
        return Resolution([], str(error.strerror or error).lower(), time.monotonic() - start)
