"""Takes the reports of members that something failed, and asks all what they know before the group ends."""

from __future__ import annotations

from tf_strategies.control_plane import messages
from tf_strategies.control_plane.coordinator.group_life import GroupLife
from tf_strategies.control_plane.coordinator.verdict import Verdict
from tf_strategies.control_plane.messages import Failure, Message
from tf_strategies.errors import Code

__all__ = ["FailureReports"]


class FailureReports:
    """Looks into the first report; the verdict on it ends the group."""

    def __init__(self, life: GroupLife) -> None:
        self._life = life
        self._verdict: Verdict | None = None

    @property
    def pending(self) -> bool:
        """True once a member has reported a failure."""
        return self._verdict is not None

    def on_report(self, rank: int, message: Message) -> None:
        """Takes a member's report, and asks all members to describe the collective."""
        failure = Failure(Code(messages.integer(message, "code")), messages.text(message, "message"))
        instance, peer = messages.integer(message, "instance"), messages.integer(message, "peer")
        if not self._life.running or self._verdict is not None:
            return
        asked = [present for present, _ in self._life.roster.present()]
        self._verdict = Verdict(rank, failure, instance, peer, asked)
        self._life.roster.send_to_all({"type": "describe", "instance": instance})

    def on_described(self, rank: int, message: Message) -> None:
        """Takes a member's description."""
        if self._verdict is not None and messages.integer(message, "instance") == self._verdict.instance:
            self._verdict.texts[rank] = messages.text(message, "text")
            self._verdict.waited[rank] = messages.number(message, "waited")
            self.watch()

    def on_dismissed(self, rank: int) -> None:
        """Stops waiting for the description of a member that has left."""
        if self._verdict is not None:
            self._verdict.texts.setdefault(rank, "nothing: it has left")
            self.watch()

    def watch(self) -> None:
        """Ends the group with the verdict once all have answered, or the time for it is over."""
        if self._life.running and self._verdict is not None and self._verdict.ready():
            roster = self._life.roster
            left = {rank: roster.entries[rank].why for rank in roster.leavers()}
            self._life.fail(self._verdict.conclude(roster.names, left))
