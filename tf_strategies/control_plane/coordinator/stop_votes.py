"""Decides where all members stop a training, when one of them wants to stop it."""

from __future__ import annotations

import dataclasses

from tf_strategies.control_plane import messages
from tf_strategies.control_plane.coordinator.group_life import GroupLife
from tf_strategies.control_plane.leavers import left_while_waiting
from tf_strategies.control_plane.messages import Message

__all__ = ["StopVote", "StopVotes"]


@dataclasses.dataclass
class StopVote:
    """Holds the answers of the members for one training.

    Attributes:
        asker: the rank that wants to stop.
        training: the number of the training.
        places: the first place at which each rank can stop.
    """

    asker: int
    training: int
    places: dict[int, int] = dataclasses.field(default_factory=dict)

    def decision(self, size: int) -> int | None:
        """Returns the place at which all members stop, or None while an answer is missing."""
        return max(self.places.values()) if len(self.places) == size else None


class StopVotes:
    """Holds one vote for each training that a member wants to stop.

    Args:
        life: the state of the group.
    """

    def __init__(self, life: GroupLife) -> None:
        self._life = life
        self._votes: dict[int, StopVote] = {}

    def on_stop(self, rank: int, message: Message) -> None:
        """Handles a request to stop. The first one makes rank 0 ask all members where they can stop."""
        training = messages.integer(message, "training")
        if training not in self._votes:
            self._votes[training] = StopVote(rank, training)
            self._life.roster.send_to_all({"type": "stop_where", "training": training})

    def on_can_stop(self, rank: int, message: Message) -> None:
        """Stores a member's answer. If it is the last one, sends the decision to all members."""
        training, place = messages.integer(message, "training"), messages.integer(message, "place")
        vote = self._votes.get(training)
        if vote is None:
            raise ValueError(f"no member has asked to stop training {training}")
        vote.places[rank] = place
        decision = vote.decision(self._life.roster.size)
        if decision is not None:
            self._life.roster.send_to_all({"type": "stop_at", "training": training, "place": decision})

    def watch(self) -> None:
        """Fails the group if a member has left without an answer."""
        roster = self._life.roster
        for vote in self._votes.values():
            left = [rank for rank in roster.leavers() if rank not in vote.places]
            if vote.decision(roster.size) is None and left:
                leaver, asker = roster.names[left[0]], roster.names[vote.asker]
                doing = "the agreement on where to stop"
                self._life.fail(
                    left_while_waiting(left[0], leaver, roster.entries[left[0]].why, asker, doing)
                )
