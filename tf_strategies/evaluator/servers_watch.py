"""Finds out whether training has ended: parameter servers end when all workers have finished."""

from __future__ import annotations

import socket
import time
from typing import Optional, Sequence

from tf_strategies.addresses import split_address

__all__ = ["ServersWatch"]

_ANSWER_SECONDS = 1.0
_GONE_SECONDS = 3.0


class ServersWatch:
    """Checks if the parameter servers can be reached.

    Args:
        addresses: the "host:port" of each server. Without addresses the servers never count as gone.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = list(addresses)
        self._were_there = False
        self._gone_since: Optional[float] = None

    def are_gone(self) -> bool:
        """Returns True if a server has answered before, and no server has answered for some seconds."""
        if any(_listens(address) for address in self._addresses):
            self._were_there, self._gone_since = True, None
            return False
        if not self._were_there:
            return False
        now = time.monotonic()
        self._gone_since = self._gone_since or now
        return now - self._gone_since >= _GONE_SECONDS


def _listens(address: str) -> bool:
    try:
        socket.create_connection(split_address(address), timeout=_ANSWER_SECONDS).close()
    except OSError:
        return False
    return True
