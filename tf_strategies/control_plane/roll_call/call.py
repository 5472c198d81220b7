"""Calls the roll over the network: each survivor listens on its own address, and connects to all of a lower rank.

A newcomer does the same, with a number above all ranks.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Iterator, Sequence

from tf_strategies.cluster import Cluster, Task
from tf_strategies.control_plane import messages
from tf_strategies.control_plane.link import Connection, Link, refuse
from tf_strategies.control_plane.messages import Message
from tf_strategies.control_plane.remote_link import RemoteLink
from tf_strategies.control_plane.roll_call.roll import Roll
from tf_strategies.control_plane.server import ControlServer
from tf_strategies.errors import BootstrapError
from tf_strategies.tls import TlsFiles

__all__ = ["call_the_roll"]

_LISTEN_SECONDS = 5.0  # until the port of the last group is free
_RETRY_SECONDS = 0.1
_HELD_SECONDS = 1.0
_TELL_SECONDS = 2.0  # until the others have received the decision
_DECISION_SECONDS = 5.0  # beyond the patience


def call_the_roll(
    cluster: Cluster,
    tasks: Sequence[Task],
    roll: Roll,
    *,
    epoch: int,
    patience: float,
    secret: bytes,
    tls: TlsFiles | None,
) -> frozenset[Task]:
    """Finds the survivors of a group. Blocks until they have decided.

    Args:
        cluster: the whole cluster.
        tasks: the tasks of the last group by rank, and then the newcomers.
        roll: what this task knows.
        epoch: the number of the last group.
        patience: how long survivors wait for one another, in seconds.
        secret: of the cluster, or b"".
        tls: the certificate of this task, or None.

    Returns:
        The tasks that form the next group.

    Raises:
        BootstrapError: this worker is not among them, or too few are left.
    """
    call = _Call(cluster, tasks, roll, epoch, secret, tls)
    with call.listening():
        return call.run(patience)


class _Call:
    def __init__(
        self,
        cluster: Cluster,
        tasks: Sequence[Task],
        roll: Roll,
        epoch: int,
        secret: bytes,
        tls: TlsFiles | None,
    ) -> None:
        self._roll, self._epoch, self._secret, self._tls = roll, epoch, secret, tls
        self._tasks = tasks
        self._all_tasks = {str(task): task for task in cluster.worker_tasks}
        self._names = [cluster.name_of(task) for task in tasks]
        self._addresses = [cluster.address_of(task) for task in tasks]
        self._changed = threading.Condition()
        self._streams: dict[Connection, int] = {}  # of those that have come
        self._links: dict[int, Link] = {}
        self._next_attempt = dict.fromkeys(roll.candidates(), 0.0)
        self._held = dict.fromkeys(
            roll.candidates(), 0.0
        )  # time.monotonic(): until then a rank that is busy counts as there
        self._decision: frozenset[Task] | None = None
        self._refusal = ""
        self._ended = False

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        server = self._listen(time.monotonic() + _LISTEN_SECONDS)
        try:
            yield
        finally:
            server.stop()
            with self._changed:
                self._ended = True
                links = list(self._links.values())
            for link in links:
                link.close()

    def _listen(self, until: float) -> ControlServer:
        mine = self._roll.rank
        while True:
            try:
                return ControlServer(
                    self._names[mine],
                    self._addresses[mine],
                    self._roll.size + self._roll.newcomers,
                    self._secret,
                    self._on_message,
                    self._tls,
                )
            except BootstrapError:
                if time.monotonic() >= until:
                    raise
                time.sleep(_RETRY_SECONDS)

    def run(self, patience: float) -> frozenset[Task]:
        start = time.monotonic()
        while True:
            waited = time.monotonic() - start
            self._connect()
            with self._changed:
                self._forget_held()
                if self._decision is not None:
                    return self._decision
                if self._refusal:
                    raise BootstrapError(f"{self._me} does not train on: {self._refusal}")
                mine = self._roll.members(waited >= patience)
                if mine is not None:
                    return self._tell(mine)
                if waited >= patience + _DECISION_SECONDS:
                    first = min(self._roll.below, default=None)
                    leader = (
                        "the survivors" if first is None else f"{self._names[first]}, although it answers"
                    )
                    raise BootstrapError(
                        f"{self._me} heard no decision within {waited:.0f} s of {leader}; see the other logs, then restart all "
                        "workers"
                    )
                self._changed.wait(_RETRY_SECONDS)

    def _forget_held(self) -> None:
        """Forgets the ranks that were busy and have not been heard of since."""
        now = time.monotonic()
        for rank in [each for each in self._next_attempt if 0 < self._held[each] <= now]:
            self._held[rank] = 0.0
            self._roll.below.discard(rank)

    @property
    def _me(self) -> str:
        return self._names[self._roll.rank]

    def _tell(self, members: tuple[int, ...]) -> frozenset[Task]:
        """Tells those that have come, and raises if these cannot go on. Returns their tasks."""
        objection = self._roll.objection(members)
        tasks = frozenset(self._tasks[each] for each in members)
        for stream in list(self._streams):
            if objection:
                refuse(stream, objection)
            else:
                stream.send({"type": "members", "tasks": sorted(map(str, tasks))})
                stream.end()
        self._changed.wait_for(lambda: not self._streams, _TELL_SECONDS)
        if objection:
            raise BootstrapError(f"{self._me} does not train on: {objection}")
        return tasks

    def _connect(self) -> None:
        """Begins to open links to the ranks below that have none."""
        now = time.monotonic()
        with self._changed:
            due = [rank for rank, at in self._next_attempt.items() if at <= now]
            for rank in due:
                del self._next_attempt[rank]
        for rank in due:  # each on a thread of its own: a name server may take long to answer
            threading.Thread(
                target=self._reach, args=(rank,), name="tf_strategies roll call", daemon=True
            ).start()

    def _reach(self, rank: int) -> None:
        try:
            link = self._open(rank)
        except OSError:  # the name of the host cannot be resolved now
            with self._changed:
                self._next_attempt[rank] = time.monotonic() + _RETRY_SECONDS
            return
        except Exception as error:
            with self._changed:
                self._refusal = f"it cannot reach {self._names[rank]}: {error!r}"
                self._changed.notify_all()
            return
        with self._changed:
            ended = self._ended
            if not ended:
                self._links[rank] = link
        if ended:
            link.close()
        else:
            link.send(
                {
                    "type": "present",
                    "rank": self._roll.rank,
                    "epoch": self._epoch,
                    "perhaps": sorted(map(list, self._roll.perhaps_formed)),
                }
            )

    def _open(self, rank: int) -> RemoteLink:
        return RemoteLink(
            self._addresses[rank],
            self._secret,
            lambda link, message: self._on_answer(rank, message),
            lambda link, reason: self._on_closed(rank),
            self._tls,
        )

    # ---- on threads of links

    def _on_answer(self, rank: int, message: Message) -> None:
        with self._changed:
            if message["type"] == "here":
                self._roll.below.add(rank)
            elif message["type"] == "members":
                chosen = [self._all_tasks.get(text) for text in messages.texts(message, "tasks")]
                if self._tasks[self._roll.rank] in chosen and None not in chosen:
                    self._decision = frozenset(task for task in chosen if task is not None)
                else:
                    self._refusal = f"{self._names[rank]} goes on without it"
            elif message["type"] == "refused" and message.get("retry"):
                self._roll.below.add(rank)
                self._held[rank] = time.monotonic() + _HELD_SECONDS
            elif message["type"] == "refused":
                self._refusal = str(message.get("message"))
            self._changed.notify_all()

    def _on_closed(self, rank: int) -> None:
        with self._changed:
            if self._held[rank] <= time.monotonic():
                self._roll.below.discard(rank)
            self._next_attempt[rank] = time.monotonic() + _RETRY_SECONDS
            self._changed.notify_all()

    # ---- on threads of the server

    def _on_message(self, stream: Connection, message: Message | None) -> None:
        with self._changed:
            if message is None:
                rank = self._streams.pop(stream, -1)
                if rank not in self._streams.values():  # it may have come again before its first stream ended
                    self._roll.above.discard(rank)
            else:
                stream.handled()
                self._on_present(stream, message)
            self._changed.notify_all()

    def _on_present(self, stream: Connection, message: Message) -> None:
        rank, epoch = message.get("rank"), message.get("epoch")
        if message["type"] != "present" or epoch != self._epoch:
            may_retry = message["type"] in ("hello", "newcomer")
            refuse(stream, f"the group of {self._me} is forming again", retry=may_retry)
            return
        if type(rank) is not int or not self._roll.may_come(rank):
            refuse(stream, f"{self._me} goes on without it")
            return
        self._roll.note_arrival(rank, messages.lists_of_ranks(message, "perhaps"))
        self._streams[stream] = rank
        stream.send({"type": "here"})
