"""Holds the phase of a group, and the failure that ends it."""

from __future__ import annotations

import enum
import secrets
import threading
import time

from tf_strategies.control_plane.coordinator.roster import Roster
from tf_strategies.control_plane.link import Connection
from tf_strategies.control_plane.messages import Failure
from tf_strategies.errors import Code

__all__ = ["GroupLife", "Phase"]


class Phase(enum.Enum):
    """The phases of a group. `FAILED` is final: a new group has a new coordinator."""

    JOINING = "joining"
    RUNNING = "running"
    FAILED = "failed"


class GroupLife:
    """Holds the state that the parts of a coordinator share.

    Args:
        roster: the members.

    Attributes:
        roster: the members.
        epoch: the number of the group, chosen at random.
        phase: the phase, which `run` and `fail` change.
        failure: the reason why the group has failed, or None.
        failed_at: time.monotonic() of the failure.
        settled: an event that is set while no member needs the coordinator.
        blamed: the ranks that were not in the group before. When members differ, the others go on without them.
    """

    def __init__(self, roster: Roster) -> None:
        self.roster = roster
        self.epoch = secrets.randbits(63)
        self.phase = Phase.JOINING
        self.failure: Failure | None = None
        self.failed_at = 0.0
        self.settled = threading.Event()
        self.blamed: frozenset[int] = frozenset()

    @property
    def running(self) -> bool:
        """True while the group is complete and has not failed."""
        return self.phase is Phase.RUNNING

    def run(self) -> None:
        """Tells all members that every rank has joined."""
        self.phase = Phase.RUNNING
        self.settled.clear()
        self.roster.send_to_all({"type": "welcome", "epoch": self.epoch})

    def fail(self, failure: Failure) -> None:
        """Ends the group, and sends the reason to all members. It does nothing if the group has already failed."""
        if self.failure is not None:
            return
        if failure.code is Code.MISMATCH and self.blamed and not failure.lost:
            names = ", ".join(self.roster.names[rank] for rank in sorted(self.blamed))
            message = f"{failure.message} (the others go on without {names}, which joined last)"
            failure = failure._replace(message=message, lost=self.blamed)
        self.phase, self.failure, self.failed_at = Phase.FAILED, failure, time.monotonic()
        self.settled.clear()
        # Rank 0 itself handles the message at once, on this thread: the others must not wait for that.
        for _, entry in sorted(self.roster.present(), key=lambda present: present[0] == 0):
            self.tell(entry.connection)

    def tell(self, connection: Connection) -> None:
        """Sends one member the reason why the group has failed, if it has."""
        if self.failure is not None:
            code, message, lost, joins, leavers, workers = self.failure
            connection.send(
                {
                    "type": "abort",
                    "code": int(code),
                    "message": message,
                    "lost": sorted(lost),
                    "joins": list(joins),
                    "leavers": sorted(leavers),
                    "workers": list(workers),
                }
            )
