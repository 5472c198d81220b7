"""Decides when something has looked slow often enough for a warning."""

from __future__ import annotations

import time
from typing import Hashable

__all__ = ["QUIET_SECONDS", "WINDOWS", "Suspicion"]

WINDOWS = 3  # one after the other with the same suspect, before the warning
QUIET_SECONDS = 600.0  # between two warnings of the same suspect


class Suspicion:
    """Counts the windows in which the same suspect was found, one after the other."""

    def __init__(self) -> None:
        self._suspect: Hashable | None = None
        self._windows, self._seconds = 0, 0.0
        self._warned: dict[Hashable, float] = {}

    def note(self, suspect: Hashable | None, seconds: float) -> float | None:
        """Adds a window.

        Args:
            suspect: what was found in it; None for nothing.
            seconds: its length.

        Returns:
            The seconds for which it has been the same suspect if that is the reason for a warning now, otherwise None.
        """
        if suspect != self._suspect:
            self._suspect, self._windows, self._seconds = suspect, 0, 0.0
        if suspect is None:
            return None
        self._windows += 1
        self._seconds += seconds
        now = time.monotonic()
        if self._windows < WINDOWS or now - self._warned.get(suspect, -QUIET_SECONDS) < QUIET_SECONDS:
            return None
        self._warned[suspect] = now
        return self._seconds
