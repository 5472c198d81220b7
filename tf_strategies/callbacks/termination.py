"""Notes SIGTERM, which asks a process to end, so that it can finish what it does."""

from __future__ import annotations

import logging
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Optional, Type

__all__ = ["EXIT_STATUS", "Termination"]

_log = logging.getLogger("tf_strategies")

EXIT_STATUS = 128 + signal.SIGTERM  # that of a process that SIGTERM has ended


class Termination:
    """A context in which SIGTERM is noted. Without it the process would end at once.

    It can be opened in the main thread alone, see `can_open`. A process that noted the signal ends when the context does, unless
    it ends already: after an error by SystemExit, and otherwise by the signal. Processes that it forks do not note it.

    Attributes:
        requested: whether the signal has arrived.
    """

    def __init__(self) -> None:
        self.requested = False

    @staticmethod
    def can_open() -> bool:
        """Returns True in the main thread, which alone can receive signals."""
        return threading.current_thread() is threading.main_thread()

    @staticmethod
    def is_handled() -> bool:
        """Returns True if the script does something of its own on SIGTERM."""
        return signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL

    def __enter__(self) -> Termination:
        self._process = os.getpid()
        self._before = signal.signal(signal.SIGTERM, self._on_signal)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self._put_back()
        if self.requested and error is None:
            self._end()
        if self.requested and isinstance(error, Exception):
            _log.error("SIGTERM asked this process to end, and it does after an error", exc_info=error)
            raise SystemExit(EXIT_STATUS) from error

    def _on_signal(self, number: int, frame: Optional[FrameType]) -> None:
        del number, frame
        if os.getpid() == self._process:
            self.requested = True
        else:
            self._put_back()
            self._end()

    def _put_back(self) -> None:
        """Lets SIGTERM do what it did before. A handler that was not set by Python cannot be put back."""
        signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)

    def _end(self) -> None:
        """Sends this process the signal again."""
        os.kill(os.getpid(), signal.SIGTERM)
        if self._before in (
            signal.SIG_DFL,
            None,
        ):  # the first process of a container, which signals do not end
            raise SystemExit(EXIT_STATUS)
