"""Counts the connections that a task has refused, and thins the log of them. Imports no TensorFlow."""

from __future__ import annotations

import threading

__all__ = ["RefusalCounts"]

_MOST_REASONS = 32
_MOST_HOSTS = 16
_FURTHER_REASONS = ""


class RefusalCounts:
    """Says which refused connections of a task are to be logged.

    These are the 1st, 2nd, 4th, 8th … for each reason, so that a frequent reason hides no other one. The first from each host is
    logged too, for up to 16 hosts of a reason.

    Thread safe. Strangers can make neither the log nor the memory grow without bound: beyond 32 reasons, further ones are counted
    as one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._hosts: dict[str, set[str]] = {}

    def count(self, reason: str, host: str) -> int:
        """Counts a refused connection.

        Args:
            reason: why it was refused: one of a few fixed texts, with nothing that the other end can choose.
            host: from which the connection came.

        Returns:
            The number of connections that were refused for this reason, if this one is to be logged. Otherwise 0.

        Example:
            >>> refused = RefusalCounts()
            >>> [refused.count("it has no secret", "10.0.0.2") for _ in range(5)]
            [1, 2, 0, 4, 0]
            >>> refused.count("it was silent", "10.0.0.2")
            1
            >>> refused.count("it has no secret", "10.0.0.3")
            6
        """
        with self._lock:
            if reason not in self._counts and len(self._counts) >= _MOST_REASONS:
                reason = _FURTHER_REASONS
            number = self._counts[reason] = self._counts.get(reason, 0) + 1
            hosts = self._hosts.setdefault(reason, set())
            is_new = host not in hosts and len(hosts) < _MOST_HOSTS
            if is_new:
                hosts.add(host)
        return number if is_new or number & (number - 1) == 0 else 0
