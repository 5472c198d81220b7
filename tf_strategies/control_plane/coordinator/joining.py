"""Lets members join until every rank has joined."""

from __future__ import annotations

import logging
import time
from typing import Mapping

from tf_strategies.control_plane import messages
from tf_strategies.control_plane.agreement import disagreement, valid_terms
from tf_strategies.control_plane.coordinator.group_life import GroupLife, Phase
from tf_strategies.control_plane.coordinator.roster import Entry
from tf_strategies.control_plane.link import Connection, refuse
from tf_strategies.control_plane.messages import Failure, Message
from tf_strategies.errors import Code

__all__ = ["Joining"]

_log = logging.getLogger("tf_strategies")

_FIRST_PROGRESS_SECONDS = 5.0
_LISTEN_SECONDS = 1.5


class Joining:
    """Handles the hello messages of members.

    Args:
        life: the state of the group.
        terms: the terms of rank 0, which every member must have.
        timeout: the number of seconds within which all members must join.
        may_grow: whether tasks of which rank 0 does not know may join later.
        listens_first: whether it is a first group that may hear of another one, which trains already; see `Herald`.

    Attributes:
        latecomers: whether the group has failed while some members had not joined. They still need the reason.
    """

    def __init__(
        self,
        life: GroupLife,
        terms: Mapping[str, object],
        timeout: float,
        may_grow: bool = False,
        listens_first: bool = False,
    ) -> None:
        self._listens = _LISTEN_SECONDS if listens_first else 0.0
        self._life, self._terms, self._timeout, self._may_grow = life, terms, timeout, may_grow
        self._roster = life.roster
        self.latecomers = False
        self._started = time.monotonic()
        self._next_progress = _FIRST_PROGRESS_SECONDS

    def on_hello(self, connection: Connection, message: Message) -> None:
        """Lets a member join, or refuses an unknown process. Fails the group if the member's terms differ."""
        rank, task = messages.integer(message, "rank"), messages.text(message, "task")
        terms, process = valid_terms(message), messages.text(message, "process")
        names = self._roster.names
        newcomer = f"{task} ({connection.peer}, {process})"
        known = 0 <= rank < self._roster.size and task == self._roster.tasks[rank]
        differing = disagreement(names[0], self._terms, names[rank] if known else newcomer, terms)
        if self._may_grow and task not in self._roster.tasks:
            reason = f"{newcomer} is not in the group of {names[0]}, and can join it when it trains"
            refuse(connection, reason, retry=True, later=True)
        elif not known:
            outsider = f"{newcomer} is not part of the cluster of {names[0]}; correct its TF_CONFIG"
            refuse(connection, f"{outsider} ({differing})" if differing else outsider)
        elif rank in self._roster.entries:
            self._on_second_hello(connection, rank, newcomer)
        else:
            self._roster.entries[rank] = Entry(connection, process)
            if self._life.failure is not None:
                self._life.tell(connection)
            elif differing:
                self.latecomers = True
                self._life.fail(Failure(Code.MISMATCH, differing))
            else:
                self._run_if_complete()

    def _run_if_complete(self) -> None:
        if self._roster.complete() and time.monotonic() - self._started >= self._listens:
            self._life.run()

    def _on_second_hello(self, connection: Connection, rank: int, newcomer: str) -> None:
        entry, name = self._roster.entries[rank], self._roster.names[rank]
        # A worker that was restarted may find the previous group.
        if entry.gone or self._life.failure is not None:
            refuse(connection, f"the previous group of {name} has not ended yet", retry=True)
            return
        reason = (
            f"two processes are {name}: the first came from {entry.connection.peer} ({entry.process}), the "
            f"second is {newcomer} and is refused; give each process its own index in TF_CONFIG"
        )
        _log.warning("%s", reason)
        refuse(connection, reason)

    def on_present(self, connection: Connection, message: Message) -> None:
        """Refuses a survivor of a group, which looks for the others.

        It may try again while this group, which is its own or may yet fail to form, has not ended.
        """
        is_over = message.get("epoch") != self._life.epoch and self._life.running
        first = self._roster.names[0]
        reason = "has formed again, and goes on without it" if is_over else "has not ended yet"
        refuse(connection, f"the group of {first} {reason}", retry=not is_over)

    def on_notice(self, rank: int, text: str) -> None:
        """Fails a group that is forming, because a rank that is missing has said why it cannot join."""
        roster = self._roster
        if self._life.phase is Phase.JOINING and rank not in roster.entries:
            reason = f"{roster.names[0]} waits in vain for {roster.names[rank]}, which has given up: {text}"
            self._life.fail(Failure(Code.MISMATCH, reason))

    def watch(self) -> None:
        """Fails the group if members are late, and logs the missing members from time to time."""
        waited, missing = time.monotonic() - self._started, self._roster.missing()
        if not missing:
            self._run_if_complete()
            return
        if waited >= self._timeout:
            self._life.fail(
                Failure(
                    Code.DEADLINE_EXCEEDED,
                    f"{', '.join(missing)} did not join {self._roster.names[0]} within {self._timeout:g} s; "
                    "start the missing workers, see their logs, check the addresses in TF_CONFIG and the firewall, "
                    "or raise the timeout",
                )
            )
        elif waited >= self._next_progress:
            self._next_progress *= 2
            _log.warning("%s waits for %s (%.0f s)", self._roster.names[0], ", ".join(missing), waited)
            for rank, entry in self._roster.present():
                if rank != 0:
                    entry.connection.send({"type": "waiting_for", "missing": missing[:16]})
