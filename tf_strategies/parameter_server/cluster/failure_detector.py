"""Detects lost servers, and ends all calls that wait for them."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import tensorflow as tf

from tf_strategies._tf import compat
from tf_strategies.parameter_server.cluster.heartbeat import MOST_UNANSWERED, Heartbeat, error_of_request
from tf_strategies.parameter_server.errors import ServerLostError
from tf_strategies.texts import utf8
from tf_strategies.types import Result, Structure

__all__ = ["FailureDetector"]

_LAST_QUESTION_SECONDS = 2.0  # or longer, if heartbeats have more time
_CANCELLED_WITHIN_SECONDS = 2.0
_LOOK_AGAIN_SECONDS = 0.25
_FAREWELL_SECONDS = 2.0

_Place = Tuple[int, int]
"""A frame of Python, and the instruction in it."""

_log = logging.getLogger("tf_strategies")


class FailureDetector:
    """Sends heartbeats to the servers, and ends calls when one is lost.

    Args:
        servers: (name, address) of each.
        processes: what identifies the process of each.
        on_lost: called once, with the reason.
        through_proxy: whether the addresses are those of gateways.
        heartbeat_timeout: the number of seconds after which a server that does not answer is lost.
        patience: the number of seconds for which a call that was cancelled may stay at one place in TensorFlow. Then the process
            ends.
        remedy: what happens, and what a user should do, after the end of a server.
        remedy_of_silence: the same for a server that hangs, or cannot be reached.

    Attributes:
        last_lost: the name of the server that was lost last; "" if none was.
    """

    def __init__(
        self,
        servers: Sequence[Tuple[str, str]],
        processes: Sequence[bytes],
        on_lost: Callable[[str], None],
        *,
        through_proxy: bool,
        heartbeat_timeout: float,
        patience: float,
        remedy: str,
        remedy_of_silence: str,
    ) -> None:
        self._through_proxy, self._timeout, self._patience = through_proxy, heartbeat_timeout, patience
        self._remedy, self._remedy_of_silence = remedy, remedy_of_silence
        self._servers, self._processes = list(servers), list(processes)
        self._tell = on_lost
        self._lock = threading.Lock()
        self._lost, self._losses = "", 0
        self.last_lost = ""
        self._open: List[Tuple[compat.CancellationManager, int]] = []
        self._watched: List[int] = []
        self._heartbeats = self._begin_heartbeats()

    def _begin_heartbeats(self) -> List[Heartbeat]:
        return [
            Heartbeat(
                name,
                address,
                lambda reason, name=name: self._on_lost(name, reason),
                timeout=self._timeout,
                through_proxy=self._through_proxy,
                process=process,
            )
            for (name, address), process in zip(self._servers, self._processes)
        ]

    @property
    def has_lost(self) -> bool:
        """Whether a server is known to be lost."""
        return bool(self._lost)

    def find_lost(self) -> str:
        """Returns what is to be said of the first server that was lost; "" if none is."""
        if not self._lost:
            self._find_lost()
        return self._lost

    def begin_again(self, processes: Sequence[bytes]) -> None:
        """Watches all servers anew, after the lost one has come back."""
        self.stop()
        with self._lock:
            self._processes = list(processes)
            self._lost, self._losses = "", self._losses + 1
        self._heartbeats = self._begin_heartbeats()

    def call(self, function: Callable[..., Result], *args: Structure) -> Result:
        """Calls a tf.function. The call ends when a server is lost.

        When a part of a function fails, TensorFlow cancels the rest through a cancellation manager. A manager
        that has been cancelled cannot be used again, so each call has its own.
        """
        manager = compat.CancellationManager()
        opened = manager, threading.get_ident()
        with self._lock:
            self._raise_if_lost()
            self._open.append(opened)
        try:
            with compat.CancellationManagerContext(manager):
                return function(*args)
        finally:
            with self._lock:
                self._open.remove(opened)

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Opens a context in which an error that a lost server caused becomes a ServerLostError.

        It also ends calls that TensorFlow would never end.
        """
        thread = threading.get_ident()
        with self._lock:
            self._raise_if_lost()
            self._watched.append(thread)
        try:
            yield
        except (ServerLostError, tf.errors.OutOfRangeError):
            raise
        except tf.errors.OpError as error:
            self._find_lost()
            with self._lock:
                if self._lost:
                    raise ServerLostError(self._lost) from error
            raise
        finally:
            with self._lock:
                self._watched.remove(thread)

    def require_all(self) -> None:
        """Sends a heartbeat to every server.

        Raises:
            ServerLostError: a server does not answer.
        """
        self._find_lost()
        with self._lock:
            self._raise_if_lost()

    def call_last(self, function: Callable[[], object]) -> None:
        """Calls the function that tells the servers that this worker has finished.

        Servers that end meanwhile do not count as lost.
        """
        done = threading.Event()
        watching = threading.Thread(
            target=self._end_with_silent, args=(done,), name="tf_strategies farewell", daemon=True
        )
        with contextlib.suppress(RuntimeError):  # Python 3.12 cannot start threads when the program ends.
            watching.start()
        try:
            function()
        finally:
            done.set()

    def stop(self) -> None:
        for heartbeat in self._heartbeats:
            heartbeat.stop()

    def _on_lost(self, name: str, reason: str) -> None:
        with self._lock:
            if self._lost:
                return
            remedy = self._remedy_of_silence if _is_silence(reason) else self._remedy
            self.last_lost, self._lost = name, f"{name} no longer answers ({reason}){remedy}"
            waiting, losses = [manager for manager, _ in self._open], self._losses
        for manager in waiting:
            manager.start_cancel()
        try:
            self._tell(self._lost)
        except Exception:
            _log.exception("the loss of %s could not be reported to all calls that wait for it", name)
        threading.Thread(
            target=self._end_stuck,
            args=(waiting, _is_silence(reason), losses),
            name="tf_strategies last resort",
            daemon=True,
        ).start()

    def _end_stuck(self, waiting: List[compat.CancellationManager], hangs: bool, losses: int) -> None:
        """Ends this process if a call waits for a server that hangs, but keeps its connections open.

        TensorFlow cannot cancel such a call.

        A call that waits for a server that has ended, and so has closed its connections, gets an error from
        TensorFlow.
        """
        pause = threading.Event()
        pause.wait(_CANCELLED_WITHIN_SECONDS)
        since: Dict[Tuple[int, _Place], float] = {}
        while threads := self._threads_in_calls(waiting, hangs, losses):
            now = time.monotonic()
            places = {(thread, place) for thread in threads if (place := _place_in_tensorflow(thread))}
            since = {each: since.get(each, now) for each in places}
            if any(now - began > self._patience for began in since.values()):
                _end_process(self._lost)
            pause.wait(_LOOK_AGAIN_SECONDS)

    def _threads_in_calls(
        self, waiting: Sequence[compat.CancellationManager], hangs: bool, losses: int
    ) -> Set[int]:
        """Returns the threads that may wait for the lost server; none after it has come back."""
        with self._lock:
            if self._losses != losses:
                return set()
            threads = {thread for manager, thread in self._open if manager in waiting}
            return threads.union(self._watched) if hangs else threads

    def _end_with_silent(self, done: threading.Event) -> None:
        while not done.wait(_FAREWELL_SECONDS):
            for name, address in self._servers:
                if all(self._hangs(address) for _ in range(MOST_UNANSWERED)) and not done.is_set():
                    _end_process(
                        f"{name} no longer answers, so this worker could not report that it has finished"
                    )

    def _raise_if_lost(self) -> None:
        if self._lost:
            raise ServerLostError(self._lost)

    def _find_lost(self) -> None:
        """Finds lost servers at once, before the next heartbeat."""
        for (name, address), process in zip(self._servers, self._processes):
            reasons = [self._error_of_request(address, process)]
            while reasons[-1] and len(reasons) < MOST_UNANSWERED:
                reasons.append(self._error_of_request(address, process))
            if reasons[-1]:
                self._on_lost(name, reasons[-1])

    def _hangs(self, address: str) -> bool:
        """Returns True if a server accepts connections but does not answer.

        A server that has ended refuses connections.
        """
        return _is_silence(self._error_of_request(address))

    def _error_of_request(self, address: str, process: bytes = b"") -> str:
        seconds = max(_LAST_QUESTION_SECONDS, self._timeout / MOST_UNANSWERED)
        return error_of_request(address, seconds, through_proxy=self._through_proxy, process=process)


def _place_in_tensorflow(thread: int) -> Optional[_Place]:
    """Returns where in TensorFlow a thread is now. It stays there while it waits, but not while it traces a function.

    Returns None if it is in Python code such as a callback, which may take its time.
    """
    frame = sys._current_frames().get(thread)
    if frame is None or not frame.f_globals.get("__name__", "").startswith("tensorflow."):
        return None
    return id(frame), frame.f_lasti


def _is_silence(reason: str) -> bool:
    """Returns True if the server was lost because it does not answer, and not because its process has ended."""
    return reason.startswith("DEADLINE_EXCEEDED")


def _end_process(reason: str) -> None:
    try:
        os.write(2, utf8(f"tf_strategies ServerLostError: {reason}\n"))
        sys.stdout.flush()
    finally:
        os._exit(1)
