"""Watches the data plane of a worker: its failures, and its long waits."""

from __future__ import annotations

import contextlib
import threading
from typing import Callable

from tf_strategies.errors import Code
from tf_strategies.native import core

__all__ = ["LONG_WAIT_SECONDS", "Watch"]

LONG_WAIT_SECONDS = 10.0
_LOOK_SECONDS = 0.5
_JOIN_SECONDS = 5.0


class Watch:
    """Watches a communicator on a thread of its own. Both functions are called there.

    Args:
        communicator: the id of the communicator.
        failed: is called with each failure, before the group has decided on its cause.
        waits_long: is called once in each wait that lasts `LONG_WAIT_SECONDS`.
    """

    def __init__(
        self, communicator: int, failed: Callable[[core.Failure], None], waits_long: Callable[[], object]
    ) -> None:
        self._communicator, self._failed, self._waits_long = communicator, failed, waits_long
        self._waited_long = False
        self._thread = threading.Thread(target=self._run, name="tf_strategies failures", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def join(self) -> None:
        """Waits a limited time for the end of the thread, unless it is the calling one. Call `core.end_failures` before."""
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        with contextlib.suppress(KeyError):
            while True:
                failure = core.wait_failure(self._communicator, timeout=_LOOK_SECONDS)
                if failure is None:
                    self._look()
                elif failure.code != Code.CANCELLED:
                    self._failed(failure)

    def _look(self) -> None:
        waiting = core.oldest_waiting(self._communicator)
        waits_long = waiting is not None and waiting.seconds > LONG_WAIT_SECONDS
        if waits_long and not self._waited_long:
            self._waits_long()
        self._waited_long = waits_long
