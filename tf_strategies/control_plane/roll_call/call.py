"""Calls the roll over the network: each survivor listens on its own address, and connects to all of a lower rank."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Callable, Iterator, Sequence

from tf_strategies.cluster import Cluster, Task
from tf_strategies.control_plane.link import Connection, Link
from tf_strategies.control_plane.messages import Message
from tf_strategies.control_plane.remote_link import RemoteLink
from tf_strategies.control_plane.roll_call.roll import Roll
from tf_strategies.control_plane.roll_call.survivor import RETRY_SECONDS, Outcome, Survivor
from tf_strategies.control_plane.server import ControlServer
from tf_strategies.errors import BootstrapError, ClusterConfigError
from tf_strategies.tls import TlsFiles

__all__ = ["ARBITER_SECONDS", "AskArbiter", "call_the_roll"]

_LISTEN_SECONDS = 5.0  # until the port of the last group is free
_TELL_SECONDS = 2.0  # until the others have received the decision
_DECISION_SECONDS = 20.0  # beyond the patience: so long a group may take that does not form

ARBITER_SECONDS = 8.0
"""In which an arbiter must answer. It is not asked later."""
_LATE_SECONDS = 1.0  # until the answer is here

AskArbiter = Callable[[frozenset[int], tuple[str, ...]], str]
"""Asks the arbiter, for ARBITER_SECONDS, whether half of a group goes on, with these ranks and names. Returns why not, or ""."""


def call_the_roll(
    cluster: Cluster,
    tasks: Sequence[Task],
    roll: Roll,
    *,
    epoch: int,
    patience: float,
    secret: bytes,
    tls: TlsFiles | None,
    ask_arbiter: AskArbiter | None = None,
) -> Cluster:
    """Finds the survivors of a group. Blocks until they have decided.

    Args:
        cluster: the whole cluster.
        tasks: the tasks of the last group by rank, and then the newcomers.
        roll: what this task knows.
        epoch: the number of the last group.
        patience: how long survivors wait for one another, in seconds.
        secret: of the cluster, or b"".
        tls: the certificate of this task, or None.
        ask_arbiter: asks the arbiter, if the roll has one.

    Returns:
        The cluster of the next group, with the workers that this group knows.

    Raises:
        BootstrapError: this worker is not among them, or too few are left.
    """
    names = [cluster.name_of(task) for task in tasks]
    survivor = Survivor(roll, list(map(str, tasks)), names, cluster.worker_addresses, epoch)
    call = _Call(survivor, [cluster.address_of(task) for task in tasks], secret, tls, ask_arbiter)
    with call.listening():
        outcome = call.run(patience)
    if outcome.reason:
        raise BootstrapError(f"{survivor.name} does not train on: {outcome.reason}")
    return _next_cluster(cluster, outcome, survivor.name)


def _next_cluster(cluster: Cluster, outcome: Outcome, name: str) -> Cluster:
    try:
        found = cluster.with_workers(outcome.workers).whole
    except ClusterConfigError as error:
        raise BootstrapError(f"{name} does not train on: {error}; see the other logs") from None
    tasks = {str(task): task for task in found.worker_tasks}
    if not outcome.tasks <= set(tasks):
        unknown = ", ".join(sorted(outcome.tasks - set(tasks)))
        raise BootstrapError(
            f"{name} does not train on: the next group has workers without addresses, {unknown}"
        )
    return found.without(task for text, task in tasks.items() if text not in outcome.tasks)


class _Call:
    def __init__(
        self,
        survivor: Survivor,
        addresses: Sequence[str],
        secret: bytes,
        tls: TlsFiles | None,
        ask_arbiter: AskArbiter | None,
    ) -> None:
        self._survivor = survivor
        self._ask_arbiter = ask_arbiter
        self._addresses, self._secret, self._tls = addresses, secret, tls
        self._changed = threading.Condition()  # its lock guards the survivor
        self._links: dict[int, Link] = {}
        self._ended = False
        self._asks_until = 0.0

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
        while True:
            try:
                return ControlServer(
                    self._survivor.name,
                    self._addresses[self._survivor.roll.rank],
                    len(self._addresses),
                    self._secret,
                    self._on_message,
                    self._tls,
                )
            except BootstrapError:
                if time.monotonic() >= until:
                    raise
                time.sleep(RETRY_SECONDS)

    def run(self, patience: float) -> Outcome:
        start = time.monotonic()
        while True:
            now = time.monotonic()
            waited = now - start
            with self._changed:
                due = self._survivor.links_to_open(now)
            for rank in due:  # each on a thread of its own: a name server may take long to answer
                threading.Thread(
                    target=self._reach, args=(rank,), name="tf_strategies roll call", daemon=True
                ).start()
            with self._changed:
                outcome = self._survivor.outcome(now, waited >= patience)
                half = self._survivor.half_to_ask_for()
                if half:
                    self._asks_until = now + ARBITER_SECONDS + _LATE_SECONDS
                    threading.Thread(
                        target=self._ask, args=(half,), name="tf_strategies arbiter", daemon=True
                    ).start()
                if outcome is not None:
                    if outcome.led:
                        self._changed.wait_for(lambda: self._survivor.is_heard, _TELL_SECONDS)
                    return outcome
                if waited >= patience + _DECISION_SECONDS and now >= self._asks_until:
                    leader = self._survivor.leader
                    whom = f"{leader}, although it answers" if leader else "the survivors"
                    if self._asks_until:
                        whom = "the arbiter"
                    raise BootstrapError(
                        f"{self._survivor.name} heard no decision within {waited:.0f} s of {whom}; see the other logs, then "
                        "restart all workers"
                    )
                self._changed.wait(RETRY_SECONDS)

    def _reach(self, rank: int) -> None:
        try:
            link = self._open(rank)
        except OSError:  # the name of the host cannot be resolved now
            self._on_closed(rank)
            return
        except Exception as error:
            with self._changed:
                self._survivor.on_error(rank, error)
                self._changed.notify_all()
            return
        with self._changed:
            ended = self._ended
            if not ended:
                self._links[rank] = link
        if ended:
            link.close()
        else:
            link.send(self._survivor.greeting())

    def _open(self, rank: int) -> RemoteLink:
        return RemoteLink(
            self._addresses[rank],
            self._secret,
            lambda link, message: self._on_answer(rank, message),
            lambda link, reason: self._on_closed(rank),
            self._tls,
        )

    def _ask(self, half: frozenset[int]) -> None:
        try:
            if self._ask_arbiter is None:
                raise ValueError("the roll has one, and nobody asks it")
            objection = self._ask_arbiter(half, self._survivor.names_of(half))
        except Exception as error:
            objection = f"the arbiter could not be asked: {error!r}"
        with self._changed:
            self._survivor.on_vote(half, objection)
            self._changed.notify_all()

    # ---- on threads of links

    def _on_answer(self, rank: int, message: Message) -> None:
        with self._changed:
            self._survivor.on_answer(rank, message, time.monotonic())
            self._changed.notify_all()

    def _on_closed(self, rank: int) -> None:
        with self._changed:
            self._survivor.on_closed(rank, time.monotonic())
            self._changed.notify_all()

    # ---- on threads of the server

    def _on_message(self, stream: Connection, message: Message | None) -> None:
        with self._changed:
            if message is None:
                self._survivor.on_ended(stream)
            else:
                stream.handled()
                self._survivor.on_message(stream, message)
            self._changed.notify_all()
