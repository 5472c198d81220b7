"""Lets tasks join a group that trains: those that were lost and have started again, and new ones if the group may grow.

A new task has a longer list of workers than the members: theirs, and then itself. The members take over its list when it joins.

The group ends for their sake, and forms again with them. It ends when rank 0 has just finished a step, because the other ranks
are near then: newcomers do not wait for a long callback.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Mapping, Sequence

from tf_strategies.cluster import Cluster
from tf_strategies.control_plane import messages
from tf_strategies.control_plane.agreement import disagreement, valid_terms
from tf_strategies.control_plane.coordinator.group_life import GroupLife, Phase
from tf_strategies.control_plane.link import Connection, refuse
from tf_strategies.control_plane.messages import Failure, Message
from tf_strategies.control_plane.succession import Succession
from tf_strategies.errors import ClusterConfigError, Code

__all__ = ["Admissions", "Newcomers"]

_GATHER_SECONDS = 0.5  # in which further newcomers may come, after the first
_COMING_SECONDS = 2.0
_NAME_LENGTH = 300


class Newcomers:
    """Says whom a group admits.

    Args:
        cluster: the cluster of rank 0.
        terms: the terms that a newcomer must have: those of rank 0 for the whole cluster.
        succession: how the group follows another one.
        most: the most members of a group that grows; None if it does not.
    """

    def __init__(
        self, cluster: Cluster, terms: Mapping[str, object], succession: Succession, most: int | None = None
    ) -> None:
        self.cluster, self.most = cluster, most
        self.terms, self.is_first = terms, succession.is_first
        self.joined = frozenset(
            rank for rank, task in enumerate(cluster.worker_tasks) if task in succession.joined
        )
        self.tasks = frozenset(map(str, cluster.whole.worker_tasks))
        self.absent = {str(task) for task in cluster.absent}


@dataclasses.dataclass
class _Newcomer:
    connection: Connection
    name: str
    workers: tuple[str, ...]  # the addresses that it knows
    fit: int
    since: float
    comes: bool = False


class Admissions:
    """Handles the messages of newcomers.

    Args:
        life: the state of the group.
        newcomers: whom it admits; None for nobody.
    """

    def __init__(self, life: GroupLife, newcomers: Newcomers | None) -> None:
        self._life, self._newcomers = life, newcomers
        life.blamed = frozenset() if newcomers is None else newcomers.joined
        self._waiting: dict[str, _Newcomer] = {}  # by task
        self._asked: dict[str, _Newcomer] = {}  # those of them that were told to come
        self._asked_at = 0.0
        self._lock = threading.Lock()
        self._fit: int | None = None

    def admit(self, fit: int | None) -> None:
        """Admits newcomers to a call of `fit` from now on; None: to none. Any thread may call it.

        All workers must be in this call of `fit`.
        """
        with self._lock:
            self._fit = fit

    def on_newcomer(self, connection: Connection, message: Message) -> None:
        """Answers a newcomer, or lets it wait."""
        task, fit = messages.text(message, "task"), messages.integer(message, "fit")
        workers, terms = messages.addresses(message, "workers"), valid_terms(message)
        first, known = self._life.roster.names[0], self._newcomers
        if self._life.failure is not None:
            refuse(connection, f"the previous group of {first} has not ended yet", retry=True)
            return
        first_forms = self._life.phase is Phase.JOINING and (known is None or known.is_first)
        takes_others = known is not None and known.most is not None
        if first_forms and takes_others and task not in self._life.roster.tasks:
            refuse(connection, f"the first group of {first} is forming", retry=True, later=True)
            return
        if first_forms or self._has_left(
            task
        ):  # it says hello next; in the second case when this group has ended
            connection.send({"type": "forming"})
            connection.end()
            return
        if known is None:
            refuse(
                connection,
                f"the group of {first} takes no newcomer {task}; give all workers the same elastic=",
            )
            return
        try:
            cluster = self._cluster_with(task, workers, known)
        except ClusterConfigError as error:
            remedy = "list the workers of the others in TF_CONFIG, and new ones after them"
            refuse(connection, f"the group of {first} takes no newcomer {task}: {error}; {remedy}")
            return
        name = cluster.name_of(cluster.task)
        differing = disagreement(first, known.terms, name, terms)
        others = len(self._life.roster.tasks) + len(set(self._waiting) - {task})
        if not self._life.running:
            refuse(connection, f"the group of {first} is forming again", retry=True)
        elif task in known.tasks and task not in known.absent:
            refuse(
                connection,
                f"the group of {first} has a {name} already; end the other process, or give this one its own index in TF_CONFIG",
                retry=True,
            )
        elif differing:
            refuse(connection, differing)
        elif known.most is not None and others >= known.most:
            reason = f"the group of {first} has {known.most} workers already (max_workers)"
            refuse(connection, reason, retry=True, full=True)
        elif fit < 1:
            connection.send({"type": "training", "workers": list(known.cluster.worker_addresses)})
            connection.end()
        else:
            before = self._waiting.pop(task, None)
            if before is not None:
                refuse(before.connection, f"another process is {name}")
            self._asked = {}
            self._waiting[task] = _Newcomer(connection, name, workers, fit, time.monotonic())

    def _cluster_with(self, task: str, workers: Sequence[str], known: Newcomers) -> Cluster:
        """Returns the cluster as a newcomer knows it. Its task is the newcomer.

        Raises:
            ClusterConfigError: it contradicts what the members know, or what others say that wait.
        """
        found = {str(each): each for each in known.cluster.with_workers(workers).whole.worker_tasks}
        mine = len(known.cluster.worker_addresses)
        if task not in found or (known.most is None and len(workers) != mine):
            raise ClusterConfigError(
                f"it knows {len(workers)} workers and the group {mine}, which does not grow without Elastic(max_workers=...)"
            )
        for each in self._waiting.values():
            known.cluster.with_workers(each.workers).with_workers(workers)
        return dataclasses.replace(known.cluster.with_workers(workers), task=found[task])

    def on_elsewhere(self, connection: Connection, message: Message) -> bool:
        """Ends a first group, because another one trains already of which its members do not know.

        Returns:
            True if members have not joined yet. They still need the reason.

        Raises:
            ClusterConfigError: that group has other workers.
        """
        name, workers = messages.text(message, "name"), messages.addresses(message, "workers")
        terms, known = valid_terms(message), self._newcomers
        connection.end()
        if known is None or known.most is None or not known.is_first or self._life.failure is not None:
            return False
        known.cluster.with_workers(workers)
        first = self._life.roster.names[0]
        if disagreement(first, known.terms, name, terms):
            return False
        forms = self._life.phase is Phase.JOINING
        self._life.fail(
            Failure(
                Code.UNAVAILABLE,
                f"{name[:_NAME_LENGTH]} trains already, in a group that has grown since; the group of {first} ends, so that its "
                "workers can join that one. Give workers that start again the longer TF_CONFIG",
                workers=workers,
            )
        )
        return forms

    def _has_left(self, task: str) -> bool:
        """Returns True if a task has left the group because its script was ready."""
        roster = self._life.roster
        if task not in roster.tasks or not self._life.running:
            return False
        entry = roster.entries.get(roster.tasks.index(task))
        return entry is not None and entry.left is not None and not entry.why

    def on_coming(self, connection: Connection) -> None:
        """Records that a newcomer knows that it joins."""
        for each in self._asked.values():
            each.comes = each.comes or each.connection is connection
        with self._lock:
            fit = self._fit
        if fit is not None and self._asked and all(newcomer.comes for newcomer in self._asked.values()):
            self._end_group(fit)

    def on_closed(self, connection: Connection) -> None:
        """Forgets a newcomer that has gone."""
        for task, each in list(self._waiting.items()):
            if each.connection is connection:
                del self._waiting[task]
                self._asked = {}

    @property
    def has_waiting(self) -> bool:
        """Whether newcomers wait. Any thread may ask."""
        return bool(self._waiting)

    def on_step(self) -> None:
        """Tells newcomers to come, which are ready, if the group is in their call of `fit`."""
        with self._lock:
            fit = self._fit
        if fit is not None and self._life.running and not self._asked:
            self._ask(
                {task: each for task, each in self._waiting.items() if each.fit == fit}, time.monotonic()
            )

    def watch(self) -> None:
        """Refuses newcomers that come too late, and forgets those that do not answer."""
        now = time.monotonic()
        with self._lock:
            fit = self._fit
        if fit is None or not self._life.running:
            self._asked = {}
            return
        self._refuse_late(fit)
        if self._asked and now - self._asked_at > _COMING_SECONDS:
            for task, each in self._asked.items():
                if not each.comes:
                    self._waiting.pop(task, None)
                    each.connection.end()
            self._asked = {}

    def _refuse_late(self, fit: int) -> None:
        for task, each in list(self._waiting.items()):
            if each.fit < fit:
                del self._waiting[task]
                refuse(
                    each.connection,
                    f"the others are in call number {fit} of fit or ElasticState.run of their script, and {task} is in number "
                    f"{each.fit}; a worker that "
                    "starts again can join in the first one only",
                )

    def _ask(self, ready: dict[str, _Newcomer], now: float) -> None:
        if not ready or now - min(each.since for each in ready.values()) < _GATHER_SECONDS:
            return
        self._asked, self._asked_at = ready, now
        tasks, joins, workers = list(self._life.roster.tasks), sorted(ready), list(self._known_then(ready))
        for each in ready.values():
            each.comes = False
            each.connection.send(
                {
                    "type": "admitted",
                    "epoch": self._life.epoch,
                    "tasks": tasks,
                    "joins": joins,
                    "workers": workers,
                }
            )

    def _known_then(self, joining: Mapping[str, _Newcomer]) -> tuple[str, ...]:
        """Returns the addresses of all workers that the next group knows: each list is the beginning of a longer one."""
        mine = () if self._newcomers is None else self._newcomers.cluster.worker_addresses
        return max([mine, *(each.workers for each in joining.values())], key=len)

    def _end_group(self, fit: int) -> None:
        joins, workers = tuple(sorted(self._asked)), self._known_then(self._asked)
        names = ", ".join(self._asked[task].name for task in joins)
        for task in joins:
            self._waiting.pop(task, None)
        self._asked = {}
        with self._lock:
            if self._fit == fit:
                self._life.fail(
                    Failure(
                        Code.UNAVAILABLE,
                        f"the group forms again, joined by {names}",
                        joins=joins,
                        workers=workers,
                    )
                )
