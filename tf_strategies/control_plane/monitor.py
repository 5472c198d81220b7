"""Reports the collective in which this rank waits, and how far it is."""

from __future__ import annotations

import math
import threading
import time
from typing import Callable

from tf_strategies.control_plane.messages import Wait

__all__ = ["Monitor"]

_REPORT_SECONDS = 1.0
_LATE_SECONDS = 1.0  # a process that runs on so much later was stopped, or had no processor


class Monitor:
    """Reports once a second how far this rank is and in which collective it waits, and once that it no longer waits.

    A process that was stopped for some seconds has not moved data meanwhile, although all may have arrived. So `quiet` counts
    only the seconds in which it ran.

    All functions are called on the thread of the monitor.

    Args:
        waiting: returns the wait of this rank; None if idle.
        report: is called with the wait, or with an empty one if idle.
        report_pace: is called once a second.
    """

    def __init__(
        self,
        waiting: Callable[[], Wait | None],
        report: Callable[[Wait], None],
        report_pace: Callable[[], None],
    ) -> None:
        self._waiting, self._report, self._report_pace = waiting, report, report_pace
        self._look = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tf_strategies monitor", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def look(self) -> None:
        """Reports now, without waiting for the end of the second."""
        self._look.set()

    def stop(self) -> None:
        """Makes the thread end soon. It never blocks."""
        self._stopped.set()
        self._look.set()

    def join(self, seconds: float) -> None:
        """Waits for the end of the thread, if it was started and is not the calling thread.

        Args:
            seconds: the longest wait.
        """
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _run(self) -> None:
        said_idle, ran, runs_since = True, time.monotonic(), -math.inf
        while True:
            self._look.wait(_REPORT_SECONDS)
            self._look.clear()
            if self._stopped.is_set():
                return
            now = time.monotonic()
            if now - ran > _REPORT_SECONDS + _LATE_SECONDS:
                runs_since = now
            ran = now
            wait = self._waiting() or Wait()
            wait = wait._replace(quiet=min(wait.quiet, now - runs_since))
            if wait.instance >= 0 or not said_idle:
                self._report(wait)
            said_idle = wait.instance < 0
            self._report_pace()
