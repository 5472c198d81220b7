"""Handles failure reports: asks all members for details before the group ends."""

from __future__ import annotations

from tf_strategies.control_plane import messages
from tf_strategies.control_plane.coordinator.failure_decision import FailureDecision
from tf_strategies.control_plane.coordinator.group_life import GroupLife
from tf_strategies.control_plane.messages import Failure, Message
from tf_strategies.errors import Code

__all__ = ["FailureReports"]


class FailureReports:
    """Collects details about the first reported failure, and then ends the group.

    Args:
        life: the state of the group.
    """

    def __init__(self, life: GroupLife) -> None:
        self._life = life
        self._decision: FailureDecision | None = None

    @property
    def pending(self) -> bool:
        """True after a member has reported a failure."""
        return self._decision is not None

    def on_report(self, rank: int, message: Message) -> None:
        """Handles a member's report: asks all members to describe the collective. Later reports are ignored."""
        failure = Failure(Code(messages.integer(message, "code")), messages.text(message, "message"))
        instance, peer = messages.integer(message, "instance"), messages.integer(message, "peer")
        if not self._life.running or self._decision is not None:
            return
        asked = [present for present, _ in self._life.roster.present()]
        self._decision = FailureDecision(rank, failure, instance, peer, asked)
        self._life.roster.send_to_all({"type": "describe", "instance": instance})

    def on_described(self, rank: int, message: Message) -> None:
        """Stores a member's description."""
        if self._decision is not None and messages.integer(message, "instance") == self._decision.instance:
            self._decision.texts[rank] = messages.text(message, "text")
            self._decision.waited[rank] = messages.number(message, "waited")
            self.watch()

    def on_dismissed(self, rank: int) -> None:
        """Stops waiting for the description of a member that has left."""
        if self._decision is not None:
            self._decision.texts.setdefault(rank, "nothing: it has left")
            self.watch()

    def watch(self) -> None:
        """Ends the group when all members have answered or the time for answers is over."""
        if self._life.running and self._decision is not None and self._decision.ready():
            roster = self._life.roster
            left = {rank: roster.entries[rank].why for rank in roster.leavers()}
            self._life.fail(self._decision.conclude(roster.names, left))
