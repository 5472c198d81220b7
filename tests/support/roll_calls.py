"""Survivors that call the roll over a network in one process, in every order of events. No sockets, no threads, no clock.

The survivors are the real ones, of `roll_call.survivor`. A state is what they know and what is on its way between them.
"""

from __future__ import annotations

import dataclasses
import pickle
from typing import Dict, Iterator, List, Set, Tuple

from tf_strategies.control_plane.link import Connection
from tf_strategies.control_plane.messages import Message
from tf_strategies.control_plane.roll_call.roll import Roll
from tf_strategies.control_plane.roll_call.survivor import RETRY_SECONDS, Outcome, Survivor

_EPOCH = 1
_END: Message = {"type": "end"}
_KILLED = Outcome(frozenset(), "it was killed")


class _Stream(Connection):
    """The lower end of a link."""

    peer = "a survivor"

    def __init__(self, down: List[Message]) -> None:
        self.down = down

    def send(self, message: Message) -> None:
        self.down.append(message)

    def end(self) -> None:
        self.down.append(_END)

    def handled(self) -> None:
        """Does nothing: messages are delivered one by one."""


@dataclasses.dataclass
class _Link:
    """A link, from the attempt to open it until both of its ends have been closed.

    Attributes:
        upper: the survivor that opens it.
        lower: the one to which it leads.
        up: the messages to the lower one.
        down: the messages to the upper one.
        is_open: whether the lower one has accepted it.
        closed: which of the two has closed it.
    """

    upper: int
    lower: int
    up: List[Message] = dataclasses.field(default_factory=list)
    down: List[Message] = dataclasses.field(default_factory=list)
    is_open: bool = False
    closed: Set[int] = dataclasses.field(default_factory=set)

    def __post_init__(self) -> None:
        self.stream = _Stream(self.down)

    def close(self, rank: int) -> None:
        """Closes one end. The other end still gets what has been sent to it."""
        self.closed.add(rank)
        mine, theirs = (self.down, self.up) if rank == self.upper else (self.up, self.down)
        mine.clear()
        if _END not in theirs:
            theirs.append(_END)

    def lose(self) -> None:
        """Ends the link for both, without the messages that are on their way."""
        for messages in (self.up, self.down):
            messages[:] = [_END]


class World:
    """Survivors and the links between them.

    Args:
        size: the number of ranks of the last group.
        lost: the ranks that each survivor knows to be lost, by rank of the survivor.
        kills: how many survivors may be killed.
        cuts: how many links may be cut.
        patient: whether all survivors wait as long as it takes, for the others and until these have heard the decision.

    Attributes:
        outcomes: how the survivors have ended, by rank.
        is_over: the survivors that wait no longer for others.
    """

    def __init__(
        self, size: int, lost: Dict[int, Set[int]], kills: int, cuts: int, patient: bool = False
    ) -> None:
        tasks = [f"worker {rank}" for rank in range(size)]
        self.survivors = {
            rank: Survivor(Roll(rank, size, frozenset(known), 1), tasks, tasks, [], _EPOCH)
            for rank, known in lost.items()
        }
        self.kills, self.cuts, self._patient = kills, cuts, patient
        self.begun: Set[int] = set()
        self.is_over: Set[int] = set()
        self.outcomes: Dict[int, Outcome] = {}
        self.links: List[_Link] = []

    def key(self) -> Tuple[object, ...]:
        """Returns a value that is equal for equal states."""
        streams = {id(link.stream): number for number, link in enumerate(self.links)}
        return (
            (
                self.kills,
                self.cuts,
                frozenset(self.begun),
                frozenset(self.is_over),
                frozenset(self.outcomes.items()),
            ),
            tuple(_known(each, streams) for each in self.survivors.values()),
            tuple(map(_on_its_way, self.links)),
        )

    def next_states(self) -> Iterator[World]:
        """Yields the states after each event that can be the next."""
        here = pickle.dumps(self)
        for event, *args in list(self._events()):
            world: World = pickle.loads(here)
            getattr(world, event)(*args)
            world._look_around()
            yield world

    def _events(self) -> Iterator[Tuple[object, ...]]:
        for rank in self.survivors:
            if rank in self.outcomes:
                continue
            if rank not in self.begun:
                yield "_begin", rank
                continue
            if rank not in self.is_over and not self._patient:
                yield "_end_patience", rank
            if self.survivors[rank]._attempts:
                yield "_retry", rank
            if self.kills:
                yield "_kill", rank
        for number, link in enumerate(self.links):
            if not link.is_open:
                yield "_open", number
                continue
            if link.up and link.lower not in link.closed:
                yield "_deliver_up", number
            if link.down and link.upper not in link.closed:
                yield "_deliver_down", number
            if link.lower in link.closed and len(link.down) > 1 and not self._patient:
                yield "_lose", number
            elif self.cuts and not link.closed and _END not in link.up:
                yield "_cut", number

    # ---- events

    def _begin(self, rank: int) -> None:
        self.begun.add(rank)
        self._open_links(rank, 0.0)

    def _open_links(self, rank: int, now: float) -> None:
        self.links.extend(_Link(rank, lower) for lower in self.survivors[rank].links_to_open(now))
        self.links.sort(key=lambda link: (link.upper, link.lower))

    def _end_patience(self, rank: int) -> None:
        self.is_over.add(rank)

    def _retry(self, rank: int) -> None:
        self._open_links(rank, RETRY_SECONDS)

    def _kill(self, rank: int) -> None:
        self.kills -= 1
        self._finish(rank, _KILLED)

    def _cut(self, number: int) -> None:
        self.cuts -= 1
        self.links[number].lose()

    def _lose(self, number: int) -> None:
        self.links[number].down[:] = [_END]

    def _open(self, number: int) -> None:
        link = self.links[number]
        if self._listens(link.lower):
            link.is_open = True
            link.up.append(self.survivors[link.upper].greeting())
        else:
            del self.links[number]
            self.survivors[link.upper].on_closed(link.lower, 0.0)

    def _deliver_up(self, number: int) -> None:
        link = self.links[number]
        message = link.up.pop(0)
        if message == _END:
            self.survivors[link.lower].on_ended(link.stream)
            link.close(link.lower)
        else:
            self.survivors[link.lower].on_message(link.stream, message)

    def _deliver_down(self, number: int) -> None:
        link = self.links[number]
        message = link.down.pop(0)
        if message == _END:
            self.survivors[link.upper].on_closed(link.lower, 0.0)
            link.close(link.upper)
        else:
            self.survivors[link.upper].on_answer(link.lower, message, 0.0)

    def _listens(self, rank: int) -> bool:
        return rank in self.begun and rank not in self.outcomes

    def _look_around(self) -> None:
        """Lets each survivor find out whether its call has ended."""
        for rank in sorted(self.begun - set(self.outcomes)):
            outcome = self.survivors[rank].outcome(0.0, rank in self.is_over)
            if outcome is not None:
                self._finish(rank, outcome)
        self.links = [link for link in self.links if len(link.closed) < 2]

    def _finish(self, rank: int, outcome: Outcome) -> None:
        self.outcomes[rank] = outcome
        self.links = [link for link in self.links if link.is_open or link.upper != rank]
        for link in self.links:
            if link.is_open and rank in (link.upper, link.lower) and rank not in link.closed:
                link.close(rank)


def _known(survivor: Survivor, streams: Dict[int, int]) -> Tuple[object, ...]:
    return (
        frozenset(survivor.roll.below),
        frozenset(survivor.roll.above),
        tuple(survivor._attempts.items()),
        frozenset((streams.get(id(stream)), rank) for stream, rank in survivor._streams.items()),
        survivor._decision,
        survivor._refusal,
    )


def _on_its_way(link: _Link) -> Tuple[object, ...]:
    return link.upper, link.lower, str(link.up), str(link.down), link.is_open, frozenset(link.closed)


def explore(start: World) -> Tuple[List[World], List[World]]:
    """Returns the states in which all survivors have ended, and those from which none of these can be reached."""
    states: Dict[object, World] = {start.key(): start}
    came_from: Dict[object, Set[object]] = {start.key(): set()}
    ahead = [start]
    while ahead:
        state = ahead.pop()
        here = state.key()
        for following in state.next_states():
            key = following.key()
            if key not in states:
                states[key] = following
                came_from[key] = set()
                ahead.append(following)
            came_from[key].add(here)
    ended = [key for key, state in states.items() if len(state.outcomes) == len(state.survivors)]
    good, behind = set(ended), list(ended)
    while behind:
        for key in came_from[behind.pop()] - good:
            good.add(key)
            behind.append(key)
    return [states[key] for key in ended], [state for key, state in states.items() if key not in good]
