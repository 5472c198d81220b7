"""The thread of the coordinator, which passes each message to its part."""

from __future__ import annotations

import functools
import logging
import queue
import threading
import time
from typing import Callable, Mapping

from tf_strategies.cluster import Cluster
from tf_strategies.control_plane import messages
from tf_strategies.control_plane.coordinator.admissions import Admissions, Newcomers
from tf_strategies.control_plane.coordinator.comparisons import Comparer, Comparisons
from tf_strategies.control_plane.coordinator.exchanges import Exchanges
from tf_strategies.control_plane.coordinator.failure_reports import FailureReports
from tf_strategies.control_plane.coordinator.group_life import GroupLife, Phase
from tf_strategies.control_plane.coordinator.joining import Joining
from tf_strategies.control_plane.coordinator.leaving import WHY_LENGTH, Leaving
from tf_strategies.control_plane.coordinator.roster import Roster
from tf_strategies.control_plane.coordinator.stall_inspector import StallInspector
from tf_strategies.control_plane.coordinator.stop_votes import StopVotes
from tf_strategies.control_plane.coordinator.straggler_watch import StragglerWatch
from tf_strategies.control_plane.coordinator.wire_watch import WireWatch
from tf_strategies.control_plane.link import Connection, refuse
from tf_strategies.control_plane.messages import Failure, Message, Pace, Wait
from tf_strategies.errors import Code
from tf_strategies.texts import described

__all__ = ["Coordinator"]

_log = logging.getLogger("tf_strategies")

_TICK_SECONDS = 0.25


class Coordinator:
    """Coordinates a group on rank 0.

    Args:
        cluster: the cluster of rank 0.
        terms: the terms of rank 0, which every member must have.
        timeout: the limit for joining, and for each exchange, in seconds.
        waited_for_batches: as for `StragglerWatch`.
        newcomers: whom the group admits while it trains; None for nobody.

    Attributes:
        admissions: lets newcomers join.
    """

    def __init__(
        self,
        cluster: Cluster,
        terms: Mapping[str, object],
        timeout: float,
        waited_for_batches: Callable[[float], float | None],
        newcomers: Newcomers | None = None,
    ) -> None:
        self._life = life = GroupLife(Roster(cluster))
        may_grow = newcomers is not None and newcomers.most is not None
        listens_first = may_grow and newcomers is not None and newcomers.is_first
        self._joining = Joining(life, terms, timeout, may_grow, listens_first)
        self.admissions = Admissions(life, newcomers)
        self._exchanges = Exchanges(life, timeout)
        self._comparisons = Comparisons(life)
        self._reports = FailureReports(life)
        self._votes = StopVotes(life)
        self._stalls = StallInspector(life.roster)
        self._stragglers = StragglerWatch(life.roster.names, waited_for_batches)
        self._wires = WireWatch(life.roster.names)
        self._leaving = Leaving(life, self._reports)
        self._inbox: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="tf_strategies coordinator", daemon=True)
        self._handlers: dict[str, Callable[[int, Message], None]] = {
            "exchange": self._exchanges.on_exchange,
            "compare": self._comparisons.on_compare,
            "waiting": self._on_waiting,
            "pace": self._on_pace,
            "report": self._reports.on_report,
            "described": self._reports.on_described,
            "leave": self._leaving.on_leave,
            "aborted": self._leaving.on_aborted,
            "stop": self._votes.on_stop,
            "can_stop": self._votes.on_can_stop,
        }

    @property
    def comparers(self) -> dict[str, Comparer]:
        """The functions that compare the payloads of two members, by topic."""
        return self._comparisons.comparers

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def post(self, connection: Connection, message: Message | None) -> None:
        """Queues a message of a member, or None if its stream has ended. It is thread-safe and never blocks."""
        self._inbox.put(functools.partial(self._handle, connection, message))

    def step_ended(self) -> None:
        """Lets newcomers join now, if some are waiting. It is thread-safe and never blocks."""
        if self.admissions.has_waiting:
            self._inbox.put(self.admissions.on_step)

    def let_leave(self, ranks: frozenset[int]) -> None:
        """Ends the group, so that some ranks leave it and the others form the next one. It is thread-safe and never blocks."""
        self._inbox.put(functools.partial(self._leaving.let_leave, ranks))

    def post_notice(self, rank: int, text: str) -> None:
        """Queues the reason for which a missing rank cannot join. It is thread-safe and never blocks."""
        self._inbox.put(functools.partial(self._joining.on_notice, rank, text))

    def wait_settled(self, timeout: float) -> bool:
        """Waits until no member needs the coordinator.

        This is the case when all members have left or know of the failure, or when a time limit is over.

        Args:
            timeout: the longest wait, in seconds.

        Returns:
            False if the wait took too long.
        """
        return self._life.settled.wait(timeout)

    def stop(self) -> None:
        """Ends the thread. It returns within a limited time."""
        self._inbox.put(None)
        self._thread.join(2)

    def _run(self) -> None:
        next_tick = time.monotonic()
        work: Callable[[], None]
        while True:
            try:
                event = self._inbox.get(timeout=max(0.0, next_tick - time.monotonic()))
                if event is None:
                    return
                work = event
            except queue.Empty:
                next_tick = time.monotonic() + _TICK_SECONDS
                work = self._tick
            try:
                work()
            except Exception as error:  # otherwise the members would wait until their deadlines
                _log.exception("the coordinator of the group failed")
                self._life.fail(Failure(Code.INTERNAL, self._own_error(error)))
            if self._leaving.is_settled(self._joining.latecomers):
                self._life.settled.set()
            else:
                self._life.settled.clear()

    def _handle(self, connection: Connection, message: Message | None) -> None:
        rank = self._life.roster.rank_of(connection)
        if message is None:
            if rank is not None:
                self._leaving.on_closed(rank)
            else:
                self.admissions.on_closed(connection)
            return
        connection.handled()
        try:
            if message["type"] == "hello":
                self._joining.on_hello(connection, message)
            elif message["type"] == "present":
                self._joining.on_present(connection, message)
            elif message["type"] == "newcomer":
                self.admissions.on_newcomer(connection, message)
            elif message["type"] == "elsewhere":
                self._joining.latecomers |= self.admissions.on_elsewhere(connection, message)
            elif message["type"] == "coming":
                self.admissions.on_coming(connection)
            elif rank is None:
                raise ValueError("the first message must be a hello")
            elif message.get("epoch") != self._life.epoch and message["type"] not in ("leave", "aborted"):
                raise ValueError(f"its epoch is {message.get('epoch')}, not {self._life.epoch}")
            elif message["type"] not in self._handlers:
                raise ValueError(f"members must not send a {message['type']!r} message")
            else:
                self._handlers[message["type"]](rank, message)
        except ValueError as error:
            first = self._life.roster.names[0]
            refuse(connection, f"{first} refuses {connection.peer}: {error}")

    def _on_waiting(self, rank: int, message: Message) -> None:
        seconds, quiet = messages.number(message, "seconds"), messages.number(message, "quiet")
        wait = Wait(messages.integer(message, "instance"), seconds, quiet, messages.text(message, "text"))
        self._life.roster.note_waiting(rank, wait)

    def _on_pace(self, rank: int, message: Message) -> None:
        sent = messages.integer(message, "sent")
        pace = Pace(
            messages.integer(message, "ended"),
            messages.number(message, "outstanding"),
            tuple(messages.wires(message, rank, len(self._life.roster.names))),
        )
        self._life.roster.entries[rank].connection.send(
            {"type": "time", "sent": sent, "at": time.monotonic_ns()}
        )
        if self._life.running:
            self._stragglers.note(rank, sent / 1e9, pace)
            self._wires.note(rank, sent / 1e9, pace.wires)

    def _tick(self) -> None:
        if self._life.phase is Phase.JOINING:
            self._joining.watch()
        elif self._life.running:
            self._exchanges.watch()
            self._votes.watch()
            self._reports.watch()
            if self._life.running and not self._reports.pending:
                self.admissions.watch()
                found = self._stalls.inspect()
                if found is not None:
                    self._life.fail(found)

    def _own_error(self, error: Exception) -> str:
        first = self._life.roster.names[0]
        return f"{first} failed to coordinate the group: {described(error, WHY_LENGTH)}; see its log, then restart all workers"
