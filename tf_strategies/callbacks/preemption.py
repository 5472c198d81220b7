"""Lets all workers leave a `fit` at the same place when one of them is asked to end by SIGTERM."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Callable, Optional, Type

from tf_strategies.errors import OptionsError
from tf_strategies.keras.group_strategy import GroupStrategy

__all__ = ["EXIT_STATUS", "Preemption"]

EXIT_STATUS = 128 + signal.SIGTERM  # that of a process that SIGTERM has ended


class _Termination:
    """A context in which SIGTERM is noted. Without it the process would end at once.

    Attributes:
        requested: whether the signal has arrived.
    """

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> _Termination:
        if threading.current_thread() is not threading.main_thread():
            raise OptionsError(
                "save_before_preemption=True needs a fit in the main thread, which alone can receive signals; call fit there, or "
                "leave the argument out"
            )
        self._before = signal.signal(signal.SIGTERM, self._on_signal)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)
        if self.requested and error is None:  # fit has ended meanwhile
            os.kill(os.getpid(), signal.SIGTERM)

    def _on_signal(self, number: int, frame: Optional[FrameType]) -> None:
        del number, frame
        self.requested = True


class Preemption(contextlib.ExitStack):
    """Finds the place at which all workers leave a `fit`. It is a context: that of the `fit`.

    Args:
        strategy: the strategy of the model; None for a single process.
        notices: whether this worker notices SIGTERM. If not, it leaves when another worker was asked to.
    """

    def __init__(self, strategy: Optional[GroupStrategy], *, notices: bool) -> None:
        super().__init__()
        self._strategy = strategy
        self._termination = _Termination()
        self._notices = notices
        self._stops: Callable[[bool], bool] = bool

    def __enter__(self) -> Preemption:
        super().__enter__()
        if self._strategy is not None:
            self._stops = self.enter_context(self._strategy.stopping_places())
        if self._notices:
            self.enter_context(self._termination)
        return self

    def stops_here(self) -> bool:
        """Returns True if all workers leave here. They must call it at the same places of their fits."""
        return self._stops(self._termination.requested)

    def preempted(self) -> str:
        """Returns in words who was asked to end. A collective."""
        if self._strategy is None:
            return "this process"
        answers = self._strategy.exchange(
            "preempted" if self._termination.requested else "", "the signal to end"
        )
        names = [self._strategy.name_of(rank) for rank, answer in enumerate(answers) if answer]
        return "all workers" if len(names) == len(answers) else ", ".join(names)
