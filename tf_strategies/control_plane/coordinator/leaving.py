"""Handles members that leave, and decides how long rank 0 waits for them."""

from __future__ import annotations

import time

from tf_strategies.control_plane import messages
from tf_strategies.control_plane.coordinator.failure_reports import FailureReports
from tf_strategies.control_plane.coordinator.group_life import GroupLife, Phase
from tf_strategies.control_plane.messages import Failure, Message
from tf_strategies.errors import Code

__all__ = ["WHY_LENGTH", "Leaving"]

WHY_LENGTH = 300  # the limit for the error that ended a member, in characters
_LEAVE_SECONDS = 10.0  # how long rank 0 waits for other members after it has left
_TELL_SECONDS = 3.0  # how long it waits until members have received a failure
_TELL_LOST_SECONDS = 1.0  # the same for members that the others go on without, but that may be alive
_TELL_LATECOMERS_SECONDS = 10.0  # the same if some members have not joined yet


class Leaving:
    """Distinguishes members that leave from members that are lost.

    Args:
        life: the state of the group.
        reports: the failure reports, which stop waiting for members that have left.
    """

    def __init__(self, life: GroupLife, reports: FailureReports) -> None:
        self._life, self._reports = life, reports
        self._entries = life.roster.entries

    def on_leave(self, rank: int, message: Message) -> None:
        """Records that a member's script has ended, and the reason."""
        entry = self._entries[rank]
        entry.left, entry.why = time.monotonic(), messages.text(message, "why")[:WHY_LENGTH]
        entry.waiting = None
        left: Message = {"type": "left", "rank": rank, "why": entry.why}
        if self._life.running:
            self._life.roster.send_to_all(left)
        else:
            entry.connection.send(left)
        if rank != 0:  # rank 0 still receives failures while it waits for the other members
            self._dismiss(rank)

    def let_leave(self, ranks: frozenset[int]) -> None:
        """Ends the group, so that some ranks leave it and the others form the next one."""
        names = ", ".join(self._life.roster.names[rank] for rank in sorted(ranks))
        self._life.fail(Failure(Code.UNAVAILABLE, f"the group forms again without {names}", leavers=ranks))

    def on_aborted(self, rank: int, message: Message) -> None:
        """Records that a member has received the failure."""
        self._entries[rank].acknowledged = True

    def on_closed(self, rank: int) -> None:
        """Fails the group if a member's connection has ended before the member left."""
        entry = self._entries[rank]
        if self._life.phase is Phase.JOINING:
            del self._entries[rank]
        elif not entry.gone:
            entry.gone, entry.waiting = True, None
            self._life.fail(Failure(Code.UNAVAILABLE, self._loss(rank), frozenset({rank})))

    def is_settled(self, latecomers: bool) -> bool:
        """Returns True if no member needs rank 0.

        This is the case when all members have left or know of the failure, or when a time limit is over.

        Args:
            latecomers: whether members that have not joined yet need the reason of the failure.
        """
        others = [entry for rank, entry in self._entries.items() if rank != 0]
        if self._life.phase is Phase.JOINING:
            return True
        if self._life.phase is Phase.RUNNING:
            mine = self._entries[0].left
            waited_long = mine is not None and time.monotonic() - mine > _LEAVE_SECONDS
            return waited_long or all(entry.gone for entry in others)
        awaited = latecomers and not self._life.roster.complete()
        limit = _TELL_LATECOMERS_SECONDS if awaited else _TELL_SECONDS
        waited = time.monotonic() - self._life.failed_at
        lost = frozenset() if self._life.failure is None else self._life.failure.lost
        given_up = lost if waited > _TELL_LOST_SECONDS else frozenset()
        told = not awaited and all(
            entry.gone or entry.acknowledged or rank in given_up
            for rank, entry in self._entries.items()
            if rank
        )
        return told or waited > limit

    def _dismiss(self, rank: int) -> None:
        entry = self._entries[rank]
        entry.gone = True
        entry.connection.end()
        if self._life.phase is Phase.JOINING:
            del self._entries[rank]
        else:
            self._reports.on_dismissed(rank)

    def _loss(self, rank: int) -> str:
        names, tasks = self._life.roster.names, self._life.roster.tasks
        return (
            f"{names[rank]} is lost: its connection to {names[0]} ended unexpectedly (the process died or was "
            f"stopped, or its network is down); see the log of {tasks[rank]}, then restart all workers"
        )
