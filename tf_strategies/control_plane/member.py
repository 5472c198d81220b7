"""The member of a group: joins it, takes part in exchanges, receives failures, and leaves."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time

from tf_strategies.control_plane import joining, messages
from tf_strategies.control_plane.callbacks import Callbacks
from tf_strategies.control_plane.clock_offset import ClockOffset
from tf_strategies.control_plane.exchanging import EXTRA_SECONDS, Exchanging
from tf_strategies.control_plane.joining import Setback
from tf_strategies.control_plane.leavers import LEFT_SECONDS, left_while_waiting
from tf_strategies.control_plane.link import Link, Opener
from tf_strategies.control_plane.messages import Failure, Message, Wait
from tf_strategies.control_plane.monitor import Monitor
from tf_strategies.control_plane.stopping import Stopping
from tf_strategies.errors import BootstrapError, Code, JoinsLaterError, OthersTrainError
from tf_strategies.types import JsonObject

_log = logging.getLogger("tf_strategies")

_FAREWELL_SECONDS = 2.0


class Member:
    """Represents this rank in its group.

    Args:
        rank: this rank.
        tasks: the tasks by rank, "worker 1".
        names: the tasks with their addresses by rank, "worker 1 (10.0.0.3:2222)".
        terms: the settings that must be equal on all members, from `agreement.terms_of`.
        timeout: the limit for joining, and for each exchange, in seconds.
        callbacks: the functions of the owner. They are called on threads of the control plane.

    Attributes:
        stopping: decides where its trainings stop.
        clock: compares the clock of rank 0 with the clock of this rank.
    """

    def __init__(
        self,
        rank: int,
        tasks: tuple[str, ...],
        names: tuple[str, ...],
        terms: dict[str, object],
        timeout: float,
        callbacks: Callbacks,
    ) -> None:
        self._rank, self._task, self._names = rank, tasks[rank], names
        self._terms, self._timeout, self._callbacks = terms, timeout, callbacks
        self._changed = threading.Condition()
        self._link: Link | None = None
        self._closed_reason: str | None = None  # of the current link
        self._refusal: Message | None = None
        self._missing = ""  # the members that have not joined yet, from the coordinator
        self._epoch: int | None = None
        self._failure: Failure | None = None
        self._aborted = False
        self._left: dict[int, str] = {}  # the reasons, by rank
        self.clock = ClockOffset()
        self.stopping = Stopping(self._changed, self._send, self._broken, timeout)
        self._exchanging = Exchanging(
            self._changed, self._send, self.failed, self._broken, rank=rank, names=names, timeout=timeout
        )
        self._closing = threading.Event()
        self._monitor = Monitor(callbacks.waiting, self._report_wait, self._report_pace)

    @property
    def epoch(self) -> int:
        """The number of the group, or 0 before it has formed."""
        return self._epoch or 0

    @property
    def left(self) -> frozenset[int]:
        """The ranks that have left the group in an orderly way."""
        with self._changed:
            return frozenset(self._left)

    def failed(self) -> Failure | None:
        """Returns the first failure of the group, or None."""
        return self._failure

    @property
    def aborted(self) -> bool:
        """Whether the coordinator has told this rank that the group has failed."""
        return self._aborted

    # ---- joining

    def join(self, open_link: Opener) -> None:
        """Opens links until this rank has joined a group.

        Args:
            open_link: opens a stream to the coordinator.

        Raises:
            BootstrapError: the deadline has passed, or the coordinator has refused this rank.
            JoinsLaterError: the group forms without this task, which can join it when it trains.
            OthersTrainError: another group trains already.
        """
        deadline = time.monotonic() + self._timeout + (EXTRA_SECONDS if self._rank == 0 else 0.0)
        joining.join(
            lambda: self._attempt(open_link, deadline),
            self._closing.wait,
            mine=self._names[self._rank],
            first=self._names[0],
            timeout=self._timeout,
        )
        self._monitor.start()

    def _attempt(self, open_link: Opener, deadline: float) -> Setback | None:
        """Tries to join with one link. Returns None on success, otherwise why to try another link."""
        with self._changed:
            self._link = self._closed_reason = self._refusal = None
        try:
            link = open_link(self._on_message, self._on_closed)
        except OSError as error:
            return Setback(f"its host cannot be resolved ({error})", "")
        with self._changed:
            self._link = link
            link.send(self._hello())
            self._changed.wait_for(self._attempt_is_over, max(0.0, deadline - time.monotonic()))
            epoch, failure, refusal, reason = self._epoch, self._failure, self._refusal, self._closed_reason
        if failure is not None and failure.workers:
            raise OthersTrainError(failure.message, failure.workers)
        if failure is not None:
            raise BootstrapError(failure.message)
        if epoch is not None:
            return None
        link.close()
        if refusal is None:
            return Setback(reason or f"it still waits for {self._missing or 'other workers'}", link.refused)
        if refusal.get("later"):
            raise JoinsLaterError(str(refusal["message"]))
        if not refusal["retry"]:
            raise BootstrapError(str(refusal["message"]))
        return Setback(str(refusal["message"]), link.refused)

    def _hello(self) -> Message:
        return {
            "type": "hello",
            "rank": self._rank,
            "task": self._task,
            "process": f"process {os.getpid()} on {socket.gethostname()}",
            "terms": self._terms,
        }

    def _attempt_is_over(self) -> bool:
        return any(x is not None for x in (self._epoch, self._failure, self._refusal, self._closed_reason))

    # ---- in the group

    def exchange(self, payload: JsonObject, what: str) -> list[JsonObject]:
        """Gathers a small JSON object from every rank; see `ControlPlane.exchange`.

        Raises:
            BootstrapError: the group has failed, or the exchange was not complete within the timeout.
        """
        return self._exchanging.exchange(payload, what)

    def report_failure(self, code: int, message: str, instance: int, peer: int) -> None:
        """Reports a failure to the coordinator, whose decision arrives through `on_abort`. It never blocks.

        If the coordinator has left, the group fails with the reported failure.
        """
        with self._changed:
            alone = self._alone()
            self._send(
                {"type": "report", "code": int(code), "message": message, "instance": instance, "peer": peer}
            )
        if alone:
            self._fail(Failure(Code(code), message))

    def compare(self, topic: str, key: str, payload: object) -> None:
        """Sends a payload for the coordinator to compare; see `ControlPlane.compare`. It never blocks."""
        with self._changed:
            self._send({"type": "compare", "topic": topic, "key": key, "payload": payload})

    def close(self, why: str = "") -> None:
        """Leaves the group. It returns within a limited time.

        `on_abort` is not called afterwards. The owner of the coordinator stops it.

        Args:
            why: the error that ended this rank, or "".
        """
        if self._closing.is_set():
            return
        self._closing.set()
        self._monitor.stop()
        with self._changed:
            link = self._link
            if link is not None:
                self._send({"type": "leave", "why": why})
                self._changed.wait_for(
                    lambda: self._rank in self._left or self._closed_reason is not None, _FAREWELL_SECONDS
                )
        if link is not None:
            link.close()
        self._monitor.join(_FAREWELL_SECONDS)

    def _send(self, message: Message) -> None:
        if self._link is not None:
            self._link.send({**message, "epoch": self._epoch})

    def _alone(self) -> bool:
        """Returns True if the coordinator has left in an orderly way, and its connection has ended."""
        return 0 in self._left and self._closed_reason is not None

    def _broken(self) -> bool:
        """Returns True if the group has failed, or the coordinator answers no more."""
        return self._failure is not None or self._alone()

    # ---- on the link's thread

    def _on_message(self, link: Link, message: Message) -> None:
        kind = message["type"]
        if kind == "describe":
            answer = self._callbacks.answer(message["instance"])
            with self._changed:
                self._send({"type": "described", **answer})
        elif kind == "abort":
            with self._changed:
                self._aborted = True
                self._send({"type": "aborted"})
            lost, leavers = messages.ranks(message, "lost"), messages.ranks(message, "leavers")
            joins, workers = messages.texts(message, "joins"), messages.addresses(message, "workers")
            self._fail(Failure(Code(message["code"]), message["message"], lost, joins, leavers, workers))
        elif kind == "time":
            self.clock.note(message["sent"], message["at"])
        elif kind == "stop_where":
            self.stopping.on_question(message["training"])
        elif kind == "waiting_for":
            self._missing = ", ".join(message["missing"])
            _log.warning("%s and %s wait for %s", self._names[self._rank], self._names[0], self._missing)
        else:
            with self._changed:
                self._take(kind, message)
                self._changed.notify_all()

    def _take(self, kind: str, message: Message) -> None:
        if kind == "welcome":
            self._epoch = message["epoch"]
        elif kind == "refused":
            self._refusal = message
        elif kind == "left":
            self._left[message["rank"]] = message["why"]
            self._monitor.look()
        elif kind == "stop_at":
            self.stopping.on_decision(message["training"], message["place"])
        elif kind == "gathered":
            self._exchanging.on_gathered(message)

    def _on_closed(self, link: Link, reason: str) -> None:
        with self._changed:
            if self._link is not None and link is not self._link:
                return
            self._closed_reason = reason
            self._changed.notify_all()
            expected = self._closing.is_set() or 0 in self._left or self._rank in self._left
            lost = self._epoch is not None and not expected
            refusal = self._refusal
        if lost and refusal is not None:
            self._fail(Failure(Code.INTERNAL, str(refusal["message"])))
        elif lost:
            cause = (
                f"{self._names[0]} is lost: its connection to {self._names[self._rank]} ended unexpectedly ({reason}); "
                "see its log, then restart all workers"
            )
            self._fail(Failure(Code.UNAVAILABLE, cause, frozenset({0})))

    def _fail(self, failure: Failure) -> None:
        with self._changed:
            if self._failure is not None:
                return
            self._failure = failure
            self._monitor.stop()
            in_group = self._epoch is not None
            self._changed.notify_all()
        if in_group and not self._closing.is_set():
            self._callbacks.tell_of(failure, self._names[self._rank])

    # ---- on the monitor's thread

    def _report_wait(self, wait: Wait) -> None:
        with self._changed:
            self._send({"type": "waiting", **wait._asdict()})
            alone = self._alone()
            why = self._left.get(0, "")
        if alone and wait.instance >= 0 and (why or wait.quiet > LEFT_SECONDS):
            self._fail(left_while_waiting(0, self._names[0], why, self._names[self._rank], wait.text))

    def _report_pace(self) -> None:
        pace = self._callbacks.pace()
        if pace is not None:
            with self._changed:
                wires = list(map(list, pace.wires))
                self._send({"type": "pace", "sent": time.monotonic_ns(), **pace._asdict(), "wires": wires})
