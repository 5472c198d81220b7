"""Lets members leave, and decides how long rank 0 stays for them."""

from __future__ import annotations

import time

from tf_strategies.control_plane import messages
from tf_strategies.control_plane.coordinator.failure_reports import FailureReports
from tf_strategies.control_plane.coordinator.group_life import GroupLife, Phase
from tf_strategies.control_plane.messages import Failure, Message
from tf_strategies.errors import Code

__all__ = ["WHY_LENGTH", "Leaving"]

WHY_LENGTH = 300  # characters of the error that made a member leave
_LEAVE_SECONDS = 10.0  # how long rank 0 stays for others after its own leave
_TELL_SECONDS = 3.0  # how long it stays to tell members of a failure
_TELL_LATECOMERS_SECONDS = 10.0  # the same when some members have not even joined


class Leaving:
    """Tells members that leave from members that are lost.

    Args:
        life: of the group.
        reports: hear of each member that has left.
    """

    def __init__(self, life: GroupLife, reports: FailureReports) -> None:
        self._life, self._reports = life, reports
        self._entries = life.roster.entries

    def on_leave(self, rank: int, message: Message) -> None:
        """Notes that a member's script has ended, and why."""
        entry = self._entries[rank]
        entry.left, entry.why = time.monotonic(), messages.text(message, "why")[:WHY_LENGTH]
        entry.waiting = None
        left: Message = {"type": "left", "rank": rank, "why": entry.why}
        if self._life.running:
            self._life.roster.send_to_all(left)
        else:
            entry.connection.send(left)
        if rank != 0:  # rank 0 must go on hearing of failures while it stays for the others
            self._dismiss(rank)

    def on_aborted(self, rank: int, message: Message) -> None:
        """Notes that a member has heard of the failure."""
        self._entries[rank].acknowledged = True

    def on_closed(self, rank: int) -> None:
        """Fails the group if a member's connection ended and it had not left."""
        entry = self._entries[rank]
        if self._life.phase is Phase.JOINING:
            del self._entries[rank]
        elif not entry.gone:
            entry.gone, entry.waiting = True, None
            self._life.fail(Failure(Code.UNAVAILABLE, self._loss(rank)))

    def is_settled(self, latecomers: bool) -> bool:
        """Returns True if no member needs rank 0: all left, or know of the failure, or it is late.

        Args:
            latecomers: whether members that have not joined must still hear of the failure.
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
        told = not awaited and all(entry.gone or entry.acknowledged for entry in others)
        return told or time.monotonic() - self._life.failed_at > limit

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
            f"{names[rank]} is lost: its connection to {names[0]} ended without a farewell (the process died "
            f"or was stopped, or its network is cut); see the log of {tasks[rank]}, then restart all workers"
        )
