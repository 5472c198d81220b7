"""Estimates how far the clock of rank 0 is ahead of this rank's clock."""

from __future__ import annotations

import collections
import threading
import time

__all__ = ["ClockOffset"]

_KEPT = 60


class ClockOffset:
    """Keeps the last round trips to rank 0, and trusts the shortest one. It is thread-safe.

    Clocks are compared as NTP does it: rank 0 reads its clock somewhere within the round trip, so the middle of the
    round trip is wrong by at most half of its length (RFC 5905, section 8).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._trips: collections.deque[tuple[int, int]] = collections.deque(maxlen=_KEPT)

    def note(self, sent_ns: int, at_ns: int, received_ns: int | None = None) -> None:
        """Adds a round trip.

        Args:
            sent_ns: `time.monotonic_ns()` of this rank when it asked.
            at_ns: the same of rank 0 when it answered.
            received_ns: the same of this rank when the answer came; by default now.
        """
        received = time.monotonic_ns() if received_ns is None else received_ns
        if received >= sent_ns:
            with self._lock:
                self._trips.append((received - sent_ns, at_ns - (sent_ns + received) // 2))

    def estimate(self) -> tuple[int, int] | None:
        """Returns the offset and its largest error, both in nanoseconds; None before the first round trip."""
        with self._lock:
            if not self._trips:
                return None
            length, offset = min(self._trips)
        return offset, (length + 1) // 2
