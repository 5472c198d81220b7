"""Rank 0's side of the group: one thread takes every member's messages in turn and decides.

Life: JOINING until every rank has said hello and agrees; RUNNING; FAILED after the first cause, which every
member is told. Nothing leads out of FAILED: a new group is a new coordinator.
"""

from __future__ import annotations

import enum
import functools
import logging
import queue
import secrets
import threading
import time
from typing import Any, Callable, Mapping

from tf_strategies.cluster import Cluster
from tf_strategies.control_plane import messages
from tf_strategies.control_plane.agreement import disagreement, valid_terms
from tf_strategies.control_plane.comparisons import Comparisons
from tf_strategies.control_plane.gathering import Gathering
from tf_strategies.control_plane.messages import Failure, Message
from tf_strategies.control_plane.roster import Connection, Entry, Roster
from tf_strategies.control_plane.stall_inspector import StallInspector
from tf_strategies.control_plane.stopping import StopVote
from tf_strategies.control_plane.verdict import Verdict, left_while_waiting
from tf_strategies.errors import Code
from tf_strategies.texts import described

_log = logging.getLogger("tf_strategies")

_TICK_SECONDS = 0.25
_FIRST_PROGRESS_SECONDS = 5.0
_WHY_LENGTH = 300
_LEAVE_SECONDS = 10.0  # how long rank 0 stays for others after its own leave
_TELL_SECONDS = 3.0  # how long it stays to tell members of a failure
_TELL_LATECOMERS_SECONDS = 10.0  # the same when some members have not even joined


class _Phase(enum.Enum):
    JOINING = "joining"
    RUNNING = "running"
    FAILED = "failed"


class Coordinator:
    """Decides for a group.

    Args:
        cluster: the cluster of rank 0.
        terms: what every member must agree with: rank 0's own terms.
        timeout: seconds the group may take to form, and each exchange may take.

    Attributes:
        judges: by topic, what compares the payloads of two members: called with the key, both names and both payloads in the
            order of the ranks; returns why the group must end, or None.
    """

    def __init__(self, cluster: Cluster, terms: Mapping[str, Any], timeout: float) -> None:
        self._roster = Roster(cluster)
        self._terms = terms
        self._timeout = timeout
        self._epoch = secrets.randbits(63)
        self._phase = _Phase.JOINING
        self._failure: Failure | None = None
        self._failed_at = 0.0
        self._latecomers = False
        self._gatherings: dict[int, Gathering] = {}
        self._verdict: Verdict | None = None
        self._votes: dict[int, StopVote] = {}
        self._comparisons = Comparisons(self._roster.size)
        self.judges: dict[str, Callable[[str, tuple[str, str], tuple[Any, Any]], str | None]] = {}
        self._inspector = StallInspector(self._roster)
        self._started = time.monotonic()
        self._next_progress = _FIRST_PROGRESS_SECONDS
        self._inbox: queue.SimpleQueue[tuple[Connection, Message | None] | None] = queue.SimpleQueue()
        self._settled = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tf_strategies coordinator", daemon=True)
        self._handlers: dict[str, Callable[[int, Message], None]] = {
            "exchange": self._on_exchange,
            "compare": self._on_compare,
            "waiting": self._on_waiting,
            "report": self._on_report,
            "described": self._on_described,
            "leave": self._on_leave,
            "aborted": self._on_aborted,
            "stop": self._on_stop,
            "can_stop": self._on_can_stop,
        }

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def post(self, connection: Connection, message: Message | None) -> None:
        """Hands over a message of a member, or None when its stream has ended. Thread-safe, never blocks."""
        self._inbox.put((connection, message))

    def wait_settled(self, timeout: float) -> bool:
        """Waits until no member needs the coordinator: all left, or know of the failure, or it is late."""
        return self._settled.wait(timeout)

    def stop(self) -> None:
        """Ends the thread; bounded."""
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
                work = functools.partial(self._handle, *event)
            except queue.Empty:
                next_tick = time.monotonic() + _TICK_SECONDS
                work = self._tick
            try:
                work()
            except Exception as error:  # without this thread the members would wait until their deadlines
                _log.exception("the coordinator of the group failed")
                self._fail(Failure(Code.INTERNAL, self._own_error(error)))
            if self._is_settled():
                self._settled.set()
            else:
                self._settled.clear()

    def _handle(self, connection: Connection, message: Message | None) -> None:
        rank = self._roster.rank_of(connection)
        if message is None:
            if rank is not None:
                self._on_closed(rank)
            return
        connection.handled()
        try:
            if message["type"] == "hello":
                self._on_hello(connection, message)
            elif rank is None:
                raise ValueError("the first message must be a hello")
            elif message.get("epoch") != self._epoch and message["type"] not in ("leave", "aborted"):
                raise ValueError(f"epoch {message.get('epoch')} is not that of this group, {self._epoch}")
            elif message["type"] not in self._handlers:
                raise ValueError(f"a member sends no {message['type']!r} message")
            else:
                self._handlers[message["type"]](rank, message)
        except ValueError as error:
            self._refuse(connection, f"{self._roster.names[0]} cannot go on with {connection.peer}: {error}")

    def _refuse(self, connection: Connection, reason: str, retry: bool = False) -> None:
        connection.send({"type": "refused", "message": reason, "retry": retry})
        connection.end()

    # ---- joining

    def _on_hello(self, connection: Connection, message: Message) -> None:
        rank, task = messages.integer(message, "rank"), messages.text(message, "task")
        terms, process = valid_terms(message), messages.text(message, "process")
        names = self._roster.names
        newcomer = f"{task} ({connection.peer}, {process})"
        known = 0 <= rank < self._roster.size and task == self._roster.tasks[rank]
        differing = disagreement(names[0], self._terms, names[rank] if known else newcomer, terms)
        if not known:
            outsider = f"{newcomer} is not part of the cluster of {names[0]}; correct its TF_CONFIG"
            self._refuse(connection, f"{outsider} ({differing})" if differing else outsider)
        elif rank in self._roster.entries:
            self._on_second_hello(connection, rank, newcomer)
        else:  # still joining, or failed while it was
            self._roster.entries[rank] = Entry(connection, process)
            if self._failure is not None:
                self._tell(connection)
            elif differing:
                self._latecomers = True
                self._fail(Failure(Code.MISMATCH, differing))
            elif self._roster.complete():
                self._phase = _Phase.RUNNING
                self._settled.clear()
                self._roster.send_to_all({"type": "welcome", "epoch": self._epoch})

    def _on_second_hello(self, connection: Connection, rank: int, newcomer: str) -> None:
        entry, name = self._roster.entries[rank], self._roster.names[rank]
        if entry.gone or self._failure is not None:  # a restarted worker meets the group it was in before
            self._refuse(connection, f"the group in which {name} was before is still ending", retry=True)
            return
        reason = (
            f"two processes are {name}: the first came from {entry.connection.peer} ({entry.process}), the "
            f"second is {newcomer}; the first stays: give each process its own index in TF_CONFIG"
        )
        _log.warning("%s", reason)
        self._refuse(connection, reason)

    # ---- messages of members

    def _on_exchange(self, rank: int, message: Message) -> None:
        if self._phase is not _Phase.RUNNING:
            return
        sequence, what = messages.integer(message, "sequence"), messages.text(message, "what")
        gathering = self._gatherings.setdefault(sequence, Gathering(sequence, rank, what))
        names = self._roster.names
        if what != gathering.what:
            first = f"{names[gathering.first_rank]} exchanges {gathering.what!r}"
            second = f"{names[rank]} {what!r}"
            self._fail(Failure(Code.MISMATCH, f"{first} and {second}; run the same script on every worker"))
            return
        gathering.payloads[rank] = message.get("payload")
        if not gathering.missing(self._roster.size):
            del self._gatherings[sequence]
            for reply in gathering.replies(self._roster.size):
                self._roster.send_to_all(reply)

    def _on_compare(self, rank: int, message: Message) -> None:
        topic, key = messages.text(message, "topic"), messages.text(message, "key")
        judge = self.judges.get(topic)
        if self._phase is not _Phase.RUNNING or judge is None:
            return
        mine = message.get("payload")
        earlier = self._comparisons.add(topic, key, rank, mine)
        if earlier is None:
            return
        (first_rank, first), (second_rank, second) = sorted([earlier, (rank, mine)], key=lambda each: each[0])
        try:
            names = (self._roster.names[first_rank], self._roster.names[second_rank])
            cause = judge(key, names, (first, second))
        except TypeError as error:
            raise ValueError(f"a compare message has an unfit payload: {error}") from None
        if cause is not None:
            self._fail(Failure(Code.MISMATCH, cause))

    def _on_waiting(self, rank: int, message: Message) -> None:
        instance, words = messages.integer(message, "instance"), messages.text(message, "text")
        self._roster.note_waiting(rank, instance, messages.number(message, "seconds"), words)

    def _on_report(self, rank: int, message: Message) -> None:
        failure = Failure(Code(messages.integer(message, "code")), messages.text(message, "message"))
        instance, peer = messages.integer(message, "instance"), messages.integer(message, "peer")
        if self._phase is not _Phase.RUNNING or self._verdict is not None:
            return
        asked = [present for present, _ in self._roster.present()]
        self._verdict = Verdict(rank, failure, instance, peer, asked)
        self._roster.send_to_all({"type": "describe", "instance": instance})

    def _on_described(self, rank: int, message: Message) -> None:
        if self._verdict is not None and messages.integer(message, "instance") == self._verdict.instance:
            self._verdict.texts[rank] = messages.text(message, "text")
            self._verdict.waited[rank] = messages.number(message, "waited")
            self._conclude_when_ready()

    def _on_stop(self, rank: int, message: Message) -> None:
        training = messages.integer(message, "training")
        if training not in self._votes:
            self._votes[training] = StopVote(rank, training)
            self._roster.send_to_all({"type": "stop_where", "training": training})

    def _on_can_stop(self, rank: int, message: Message) -> None:
        training, place = messages.integer(message, "training"), messages.integer(message, "place")
        vote = self._votes.get(training)
        if vote is None:
            raise ValueError(f"nobody asked where training {training} can stop")
        vote.places[rank] = place
        decision = vote.decision(self._roster.size)
        if decision is not None:
            self._roster.send_to_all({"type": "stop_at", "training": training, "place": decision})

    def _on_leave(self, rank: int, message: Message) -> None:
        entry = self._roster.entries[rank]
        entry.left, entry.why = time.monotonic(), messages.text(message, "why")[:_WHY_LENGTH]
        entry.waiting = None
        left: Message = {"type": "left", "rank": rank, "why": entry.why}
        if self._phase is _Phase.RUNNING:
            self._roster.send_to_all(left)
        else:
            entry.connection.send(left)
        if rank != 0:  # rank 0 must go on hearing of failures while it stays for the others
            self._dismiss(rank)

    def _on_aborted(self, rank: int, message: Message) -> None:
        self._roster.entries[rank].acknowledged = True

    def _on_closed(self, rank: int) -> None:
        entry = self._roster.entries[rank]
        if self._phase is _Phase.JOINING:
            del self._roster.entries[rank]
        elif not entry.gone:
            entry.gone, entry.waiting = True, None
            self._fail(Failure(Code.UNAVAILABLE, self._loss(rank)))

    def _dismiss(self, rank: int) -> None:
        entry = self._roster.entries[rank]
        entry.gone = True
        entry.connection.end()
        if self._phase is _Phase.JOINING:
            del self._roster.entries[rank]
        elif self._verdict is not None:
            self._verdict.texts.setdefault(rank, "nothing: it has left")
            self._conclude_when_ready()

    def _loss(self, rank: int) -> str:
        names = self._roster.names
        return (
            f"{names[rank]} is lost: its connection to {names[0]} ended without a farewell (the process died "
            f"or was stopped, or its network is cut); see the log of {self._roster.tasks[rank]}, then "
            "restart all workers"
        )

    # ---- time

    def _tick(self) -> None:
        if self._phase is _Phase.JOINING:
            self._watch_joining()
        elif self._phase is _Phase.RUNNING:
            self._watch_exchanges()
            self._watch_votes()
            self._conclude_when_ready()
            if self._phase is _Phase.RUNNING and self._verdict is None:
                found = self._inspector.inspect()
                if found is not None:
                    self._fail(found)

    def _watch_joining(self) -> None:
        waited, missing = time.monotonic() - self._started, self._roster.missing()
        if waited >= self._timeout:
            self._fail(
                Failure(
                    Code.DEADLINE_EXCEEDED,
                    f"{', '.join(missing)} did not join {self._roster.names[0]} within {self._timeout:g} s; "
                    "start the missing, see their logs, check the addresses in TF_CONFIG and the firewall, "
                    "or raise the timeout",
                )
            )
        elif waited >= self._next_progress:
            self._next_progress *= 2
            _log.warning("%s waits for %s (%.0f s)", self._roster.names[0], ", ".join(missing), waited)
            for rank, entry in self._roster.present():
                if rank != 0:
                    entry.connection.send({"type": "waiting_for", "missing": missing[:16]})

    def _watch_exchanges(self) -> None:
        names = self._roster.names
        for gathering in list(self._gatherings.values()):
            missing = gathering.missing(self._roster.size)
            left = [rank for rank in missing if self._roster.entries[rank].gone]
            if left:
                cause = (
                    f"{names[left[0]]} left the group before it took part in {gathering.what!r}; see its log"
                )
                self._fail(Failure(Code.UNAVAILABLE, cause))
                return
            if time.monotonic() - gathering.started >= self._timeout:
                late = ", ".join(names[rank] for rank in missing)
                cause = f"{late} did not take part in {gathering.what!r} in {self._timeout:g} s; see its log"
                self._fail(Failure(Code.DEADLINE_EXCEEDED, cause))
                return

    def _watch_votes(self) -> None:
        for vote in self._votes.values():
            left = [rank for rank in self._roster.leavers() if rank not in vote.places]
            if vote.decision(self._roster.size) is None and left:
                leaver, asker = self._roster.names[left[0]], self._roster.names[vote.asker]
                doing = "the agreement on where to stop"
                self._fail(left_while_waiting(leaver, self._roster.entries[left[0]].why, asker, doing))

    def _conclude_when_ready(self) -> None:
        if self._phase is _Phase.RUNNING and self._verdict is not None and self._verdict.ready():
            left = {rank: self._roster.entries[rank].why for rank in self._roster.leavers()}
            self._fail(self._verdict.conclude(self._roster.names, left))

    def _is_settled(self) -> bool:
        others = [entry for rank, entry in self._roster.entries.items() if rank != 0]
        if self._phase is _Phase.JOINING:
            return True
        if self._phase is _Phase.RUNNING:
            mine = self._roster.entries[0].left
            waited_long = mine is not None and time.monotonic() - mine > _LEAVE_SECONDS
            return waited_long or all(entry.gone for entry in others)
        awaited = self._latecomers and not self._roster.complete()
        limit = _TELL_LATECOMERS_SECONDS if awaited else _TELL_SECONDS
        told = not awaited and all(entry.gone or entry.acknowledged for entry in others)
        return told or time.monotonic() - self._failed_at > limit

    # ---- failure

    def _own_error(self, error: Exception) -> str:
        first = self._roster.names[0]
        return f"{first} cannot go on with the group: {described(error, _WHY_LENGTH)}; see its log, then restart all workers"

    def _fail(self, failure: Failure) -> None:
        if self._failure is not None:
            return
        self._phase, self._failure, self._failed_at = _Phase.FAILED, failure, time.monotonic()
        self._settled.clear()
        for _, entry in self._roster.present():
            self._tell(entry.connection)

    def _tell(self, connection: Connection) -> None:
        if self._failure is not None:
            connection.send(
                {"type": "abort", "code": int(self._failure.code), "message": self._failure.message}
            )
