"""Takes part in the calling of the roll, for one survivor: which links it opens, what it says, and when it knows enough.

No sockets, no threads, no clock: `call.py` has them. The next group knows the workers that its leader knows: one that has not
heard of the end of the last group may know fewer of them.
"""

from __future__ import annotations

from typing import NamedTuple, Sequence

from tf_strategies.control_plane import messages
from tf_strategies.control_plane.link import Connection, refuse
from tf_strategies.control_plane.messages import Message
from tf_strategies.control_plane.roll_call.roll import Roll

__all__ = ["Outcome", "Survivor"]

RETRY_SECONDS = 0.1
HELD_SECONDS = 1.0  # in which a rank that is busy counts as there


class Outcome(NamedTuple):
    """The end of a call.

    Attributes:
        tasks: the tasks of the next group; none if this survivor is not among them.
        reason: why it is not.
        led: whether this survivor has decided that. Then the others may not have heard yet.
        workers: the addresses of all workers that the next group knows.
    """

    tasks: frozenset[str]
    reason: str = ""
    led: bool = False
    workers: tuple[str, ...] = ()


class Survivor:
    """Holds what a survivor has said and heard. A newcomer does the same, with a number above all ranks.

    Times are seconds on one clock.

    Args:
        roll: what it knows of the others.
        tasks: the tasks of the last group by rank, and then the newcomers.
        names: their names.
        workers: the addresses of all workers that it knows.
        epoch: the number of the last group.
    """

    def __init__(
        self, roll: Roll, tasks: Sequence[str], names: Sequence[str], workers: Sequence[str], epoch: int
    ) -> None:
        self.roll = roll
        self._tasks, self._names, self._workers, self._epoch = tasks, names, tuple(workers), epoch
        self._streams: dict[Connection, int] = {}  # of those that have come
        self._attempts = dict.fromkeys(roll.candidates(), 0.0)  # the times of the next attempts
        self._held = dict.fromkeys(roll.candidates(), 0.0)  # until then, a rank that is busy counts as there
        self._decision: Outcome | None = None
        self._refusal = ""
        # The answers of the arbiter, by the ranks for which it was asked; "" is its vote.
        self._objections: dict[frozenset[int], str] = {}
        self._asked: set[frozenset[int]] = set()
        self._to_ask: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        """The name of this survivor."""
        return self._names[self.roll.rank]

    @property
    def leader(self) -> str:
        """The name of the survivor that is to decide, as far as this one knows, or ""."""
        return self._names[min(self.roll.below)] if self.roll.below else ""

    @property
    def is_heard(self) -> bool:
        """Whether all who have come know the outcome."""
        return not self._streams

    # ---- towards those below

    def links_to_open(self, now: float) -> list[int]:
        """Returns the ranks to which links are to be opened now."""
        due = [rank for rank, at in self._attempts.items() if at <= now]
        for rank in due:
            del self._attempts[rank]
        return due

    def greeting(self) -> Message:
        """Returns the first message on a link."""
        attempts = sorted(map(list, self.roll.perhaps_formed))
        return {"type": "present", "rank": self.roll.rank, "epoch": self._epoch, "perhaps": attempts}

    def on_answer(self, rank: int, message: Message, now: float) -> None:
        """Takes a message from a link."""
        if message["type"] == "here":
            self.roll.below.add(rank)
        elif message["type"] == "members":
            chosen = frozenset(messages.texts(message, "tasks"))
            if self._tasks[self.roll.rank] in chosen:
                self._decision = Outcome(chosen, workers=messages.addresses(message, "workers"))
            else:
                self._refusal = f"{self._names[rank]} goes on without it"
        elif message["type"] == "refused" and message.get("retry"):
            self.roll.below.add(rank)
            self._held[rank] = now + HELD_SECONDS
        elif message["type"] == "refused":
            self._refusal = str(message.get("message"))

    def on_closed(self, rank: int, now: float) -> None:
        """Notes that a link has ended, or could not be opened now."""
        if self._held[rank] <= now:
            self.roll.below.discard(rank)
        self._attempts[rank] = now + RETRY_SECONDS

    def on_error(self, rank: int, error: Exception) -> None:
        """Notes that no link to a rank can ever be opened."""
        self._refusal = f"it cannot reach {self._names[rank]}: {error!r}"

    # ---- towards those above

    def on_message(self, stream: Connection, message: Message) -> None:
        """Takes a message of a process that has come."""
        rank, epoch = message.get("rank"), message.get("epoch")
        if message["type"] != "present" or epoch != self._epoch:
            may_retry = message["type"] in ("hello", "newcomer")
            refuse(stream, f"the group of {self.name} is forming again", retry=may_retry)
        elif type(rank) is not int or not self.roll.may_come(rank):
            refuse(stream, f"{self.name} goes on without it")
        else:
            self.roll.note_arrival(rank, messages.lists_of_ranks(message, "perhaps"))
            self._streams[stream] = rank
            stream.send({"type": "here"})

    def on_ended(self, stream: Connection) -> None:
        """Notes that a process that has come has gone."""
        rank = self._streams.pop(stream, -1)
        if rank not in self._streams.values():  # it may have come again before its first stream ended
            self.roll.above.discard(rank)

    # ---- the arbiter

    def half_to_ask_for(self) -> frozenset[int]:
        """Returns the ranks for which the arbiter is to be asked now, once; none if there are none."""
        half, self._to_ask = self._to_ask, frozenset()
        return half

    def names_of(self, ranks: frozenset[int]) -> tuple[str, ...]:
        """Returns the names of ranks, in their order."""
        return tuple(self._names[each] for each in sorted(ranks))

    def on_vote(self, half: frozenset[int], objection: str) -> None:
        """Takes the answer of the arbiter.

        Args:
            half: the ranks for which it was asked.
            objection: why they may not go on and what to do, or "" if they may.
        """
        self._objections[half] = objection

    # ---- the end

    def outcome(self, now: float, patience_is_over: bool) -> Outcome | None:
        """Returns the end of the call, or None as long as there is none. Tells those that have come."""
        self._forget_held(now)
        if self._decision is not None:
            return self._decision
        if self._refusal:
            return Outcome(frozenset(), self._refusal)
        members = self.roll.members(patience_is_over)
        return None if members is None else self._decide(members)

    def _forget_held(self, now: float) -> None:
        """Forgets the ranks that were busy and have not been heard of since."""
        for rank in [each for each in self._attempts if 0 < self._held[each] <= now]:
            self._held[rank] = 0.0
            self.roll.below.discard(rank)

    def _decide(self, members: tuple[int, ...]) -> Outcome | None:
        """Returns the end of the call, or None as long as the arbiter has not answered."""
        objection = self.roll.objection(members)
        half = self.roll.half(members)
        if half and not objection:
            if half not in self._asked:
                self._asked.add(half)
                self._to_ask = half
            if half not in self._objections:
                return None
            if self._objections[half]:
                objection = f"only {len(half)} of {2 * len(half)} workers found one another, and {self._objections[half]}"
        return self._tell(members, objection)

    def _tell(self, members: tuple[int, ...], objection: str) -> Outcome:
        tasks = frozenset(self._tasks[each] for each in members)
        for stream in list(self._streams):
            if objection:
                refuse(stream, objection)
            else:
                stream.send({"type": "members", "tasks": sorted(tasks), "workers": list(self._workers)})
                stream.end()
        return Outcome(frozenset() if objection else tasks, objection, True, self._workers)
