"""Ends what waits for servers as soon as one of them is lost."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from typing import Any, Callable, Iterator, List, Sequence, Tuple

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.parameter_server.errors import ServerLostError
from tf_strategies.parameter_server.pulse import Pulse, why_silent

__all__ = ["Guard"]

_LAST_QUESTION_SECONDS = 2.0
_CANCELLED_WITHIN_SECONDS = 2.0


class Guard:
    """Asks the servers all the time whether they are there.

    Args:
        servers: (name, address) of each.
        on_lost: called with the reason, once.
    """

    def __init__(self, servers: Sequence[Tuple[str, str]], on_lost: Callable[[str], None]) -> None:
        self._servers = list(servers)
        self._tell = on_lost
        self._lock = threading.Lock()
        self._lost = ""
        self._open: List = []
        self._pulses = [
            Pulse(name, address, lambda reason, name=name: self._on_lost(name, reason))
            for name, address in self._servers
        ]

    def call(self, function: Callable, *args: Any) -> Any:
        """Calls a tf.function; it ends when it waits for a server that is lost.

        TensorFlow cancels what a function has begun when a part of it fails, and nothing can be run under what was cancelled
        once: each call has a manager of its own.
        """
        manager = compat.CancellationManager()
        with self._lock:
            self._raise_if_lost()
            self._open.append(manager)
        try:
            with compat.CancellationManagerContext(manager):
                return function(*args)
        finally:
            with self._lock:
                self._open.remove(manager)

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Within, an error that a lost server caused becomes a ServerLostError."""
        try:
            yield
        except tf.errors.OpError as error:
            self._find_lost()
            with self._lock:
                if self._lost:
                    raise ServerLostError(self._lost) from error
            raise

    def stop(self) -> None:
        for pulse in self._pulses:
            pulse.stop()

    def _on_lost(self, name: str, reason: str) -> None:
        with self._lock:
            if self._lost:
                return
            self._lost = (
                f"{name} answers no more ({reason}), and the variables it held are gone; look at its log, then start servers and "
                "workers again: with a checkpoint they go on from there"
            )
            waiting = list(self._open)
        for manager in waiting:
            manager.start_cancel()
        self._tell(self._lost)
        if waiting:
            last_resort = threading.Timer(_CANCELLED_WITHIN_SECONDS, self._end_process, args=(waiting,))
            last_resort.daemon = True
            last_resort.start()

    def _end_process(self, waiting: List) -> None:
        """TensorFlow cannot cancel a function whose server has stopped but keeps its connections; nothing else ends that."""
        with self._lock:
            stuck = any(manager in self._open for manager in waiting)
        if stuck:
            sys.stdout.flush()
            print(f"tf_strategies ServerLostError: {self._lost}", file=sys.stderr, flush=True)
            os._exit(1)

    def _raise_if_lost(self) -> None:
        if self._lost:
            raise ServerLostError(self._lost)

    def _find_lost(self) -> None:
        """An error may come before the next question would have been asked."""
        for name, address in self._servers:
            reason = why_silent(address, _LAST_QUESTION_SECONDS)
            if reason:
                self._on_lost(name, reason)
