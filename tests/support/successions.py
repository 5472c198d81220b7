"""The groups of elastic training as a state machine: who trains, who looks for whom, and who waits for which group.

There is no clock. A worker may give up waiting at any moment, a message may arrive late or never, and a worker that was killed is
one to which nothing happens any more. The rule that decides who may go on is the real one, `Roll.objection`, and so are the votes
of an arbiter.

One case is left out: rank 0 may give up while its coordinator still completes the group. The outcome is that of the other order.
"""

from __future__ import annotations

import functools
import itertools
from typing import Callable, Iterable, Iterator, NamedTuple

from tf_strategies.arbiter.votes import Vote, Votes
from tf_strategies.control_plane.roll_call import Roll

Rule = Callable[[Roll, "tuple[int, ...]"], str]


class Group(NamedTuple):
    """A group, from the decision to form it.

    Attributes:
        before: the number of the group that it follows; -1 for the first one.
        members: its workers, by rank.
        told: those that may hear that it is to form. Each call of the roll has its own streams.
        voted: those that have told its rank 0 that they are connected with all others.
        complete: whether its rank 0 has then told all others that it is complete.
        aborted: whether its rank 0 has told all others that it ends, before it was complete.
        joins: the newcomers for whose sake it ends, of which a member may not have heard.
        leavers: the members for whose sake it ends, and that leave it in good order.
        votes: the halves of it that the arbiter has let go on, by rank.
    """

    before: int
    members: tuple[int, ...]
    told: frozenset[int] = frozenset()
    voted: frozenset[int] = frozenset()
    complete: bool = False
    aborted: bool = False
    joins: tuple[int, ...] = ()
    leavers: frozenset[int] = frozenset()
    votes: frozenset[frozenset[int]] = frozenset()


class Worker(NamedTuple):
    """Describes what a worker does.

    Attributes:
        does: "trains" in a group, "waits" until a group is complete, "calls" the roll of a group, is "new" in the roll of a
            group, or has "left".
        group: the number of the group.
        perhaps: the numbers of the groups that it has tried to form after that one, and that may have formed.
    """

    does: str
    group: int
    perhaps: frozenset[int] = frozenset()


class State(NamedTuple):
    """All groups, by number, all workers, and the number of the group that has made the last step."""

    groups: tuple[Group, ...]
    workers: tuple[Worker, ...]
    last: int = 0


class SplitBrainError(Exception):
    """Reports that two groups train of which none follows the other."""


def beginning(size: int, further: int = 0) -> State:
    """Returns the state in which all workers train in the first group, but for `further` ones that it does not know."""
    first = tuple(range(size))
    workers = (*(Worker("trains", 0) for _ in first), *(Worker("left", 0) for _ in range(further)))
    return State((Group(-1, first, complete=True),), workers)


def reachable(
    size: int,
    groups: int,
    *,
    changes: bool = True,
    further: int = 0,
    rule: Rule = Roll.objection,
    arbiter: bool = False,
) -> int:
    """Returns the number of states in which the workers can be.

    Args:
        size: the number of workers.
        groups: the largest number of groups.
        changes: whether workers also leave in good order, and come back.
        further: the number of workers that can join beside those of the first group.
        rule: says why some survivors cannot form a group, or "".
        arbiter: whether an arbiter decides between halves.

    Raises:
        SplitBrainError: two groups train of which none follows the other.
    """
    start = beginning(size, further)
    came_from: dict[State, State | None] = {start: None}
    ahead = [start]
    while ahead:
        state = ahead.pop()
        for following in _next(state, groups, changes, rule, arbiter):
            if following in came_from:
                continue
            came_from[following] = state
            try:
                found = _with_step(following)
            except SplitBrainError as error:
                raise SplitBrainError(f"{error}; this way:\n{_way(came_from, following)}") from None
            if found is not following:
                came_from.setdefault(found, following)
            ahead.append(found)
    return len(came_from)


def _way(came_from: dict[State, State | None], state: State | None) -> str:
    steps: list[str] = []
    while state is not None:
        steps.append(str(state))
        state = came_from[state]
    return "\n".join(reversed(steps))


def _with_step(state: State) -> State:
    """Lets a group make a step, if all its members train in it."""
    for number, group in enumerate(state.groups):
        if all(state.workers[each] == Worker("trains", number) for each in group.members):
            if state.last not in _line(state, number):
                raise SplitBrainError(
                    f"{group.members} train after {state.groups[state.last].members}: {state}"
                )
            state = state._replace(last=number)
    return state


def _line(state: State, number: int) -> Iterator[int]:
    while number >= 0:
        yield number
        number = state.groups[number].before


def _next(state: State, groups: int, changes: bool, rule: Rule, arbiter: bool) -> Iterator[State]:
    for number in range(len(state.groups)):
        yield from _ways_to_complete(state, number)
        if changes:
            yield from _ways_to_change(state, number)
    for each, worker in enumerate(state.workers):
        if worker.does == "trains":
            yield _moved(state, each, Worker("calls", worker.group))
        elif worker.does == "waits":
            yield from _ways_to_stop_waiting(state, each)
        elif worker.does == "calls" and len(state.groups) < groups:
            yield from _decisions(state, each, rule, arbiter)


def _ways_to_complete(state: State, number: int) -> Iterator[State]:
    group = state.groups[number]
    if group.complete or group.aborted:
        return
    for each in group.told:
        heard = _changed(state, number, voted=group.voted | {each})
        yield _moved(heard, each, Worker("waits", number, state.workers[each].perhaps))
    if state.workers[group.members[0]][:2] == ("waits", number):
        yield _changed(state, number, aborted=True, voted=frozenset(), told=frozenset())
        if group.voted == set(group.members):
            yield _changed(state, number, complete=True, voted=frozenset())


def _ways_to_stop_waiting(state: State, each: int) -> Iterator[State]:
    worker = state.workers[each]
    group = state.groups[worker.group]
    if group.complete:
        yield _moved(state, each, Worker("trains", worker.group))
    if each not in state.groups[group.before].members:  # a newcomer asks for another group
        yield _moved(state, each, Worker("left", 0))
        return
    yield _moved(state, each, Worker("calls", group.before, worker.perhaps | {worker.group}))
    if group.aborted:
        yield _moved(state, each, Worker("calls", group.before, worker.perhaps))


def _ways_to_change(state: State, number: int) -> Iterator[State]:
    """Lets all who train in a group agree on leavers, or its rank 0 admit newcomers."""
    group = state.groups[number]
    if not group.complete or group.joins or group.leavers:
        return
    if all(state.workers[each] == Worker("trains", number) for each in group.members):
        for leavers in _subsets(group.members):
            if 0 < len(leavers) < len(group.members):
                left = _changed(state, number, leavers=frozenset(leavers))
                for each in leavers:
                    left = _moved(left, each, Worker("left", 0))
                yield left
    if all(state.workers[each] == Worker("trains", number) for each in group.members[:1]):
        absent = [each for each in range(len(state.workers)) if each not in group.members]
        for joins in _subsets(
            absent
        ):  # other processes of the same tasks: what the last ones did is forgotten
            if joins:
                came = _changed(state, number, joins=joins)
                for each in joins:
                    came = _moved(came, each, Worker("new", number))
                yield came


def _decisions(state: State, leader: int, rule: Rule, arbiter: bool) -> Iterator[State]:
    """Lets a survivor decide who forms the next group, with any of those that look for one another."""
    last = state.workers[leader].group
    group = state.groups[last]
    numbers = {each: number for number, each in enumerate((*group.members, *group.joins))}
    others = [
        each
        for each, worker in enumerate(state.workers)
        if worker.group == last and worker.does in ("calls", "new") and numbers[each] > numbers[leader]
    ]
    for knows_leavers, some in itertools.product({False, bool(group.leavers)}, _subsets(others)):
        roll = Roll(
            numbers[leader],
            len(group.members),
            frozenset(),
            1,
            newcomers=len(group.joins),
            leavers=frozenset(map(numbers.__getitem__, group.leavers if knows_leavers else ())),
            perhaps_formed=frozenset(_attempts(state, leader, numbers)),
            has_arbiter=arbiter,
        )
        for each in some:
            roll.note_arrival(numbers[each], _attempts(state, each, numbers))
        members = (leader, *some)
        ranks = tuple(sorted(map(numbers.__getitem__, members)))
        if rule(roll, ranks):
            continue
        voted, half = state, roll.half(ranks)
        if half:
            if not _may_go_on(group.votes, half):
                continue
            voted = _changed(state, last, votes=group.votes | {half})
            yield voted  # the leader does not get the answer
        decided = Group(last, tuple(sorted(members)), frozenset(some), frozenset({leader}))
        waits = Worker("waits", len(voted.groups), voted.workers[leader].perhaps)
        yield _moved(voted._replace(groups=(*voted.groups, decided)), leader, waits)


@functools.cache
def _may_go_on(given: frozenset[frozenset[int]], half: frozenset[int]) -> bool:
    votes = Votes()
    for each in given:
        votes.objection(Vote(0, each))
    return not votes.objection(Vote(0, half))


def _attempts(state: State, each: int, numbers: dict[int, int]) -> Iterator[tuple[int, ...]]:
    for attempt in state.workers[each].perhaps:
        yield tuple(map(numbers.__getitem__, state.groups[attempt].members))


def _subsets(some: Iterable[int]) -> Iterator[tuple[int, ...]]:
    everyone = list(some)
    for count in range(len(everyone) + 1):
        yield from itertools.combinations(everyone, count)


def _moved(state: State, each: int, worker: Worker) -> State:
    """Lets a worker do something else. What was sent to it does not reach it any more."""
    for number, group in enumerate(state.groups):
        if each in group.told:
            state = _changed(state, number, told=group.told - {each})
    return state._replace(workers=(*state.workers[:each], worker, *state.workers[each + 1 :]))


def _changed(state: State, number: int, **changes: object) -> State:
    changed = state.groups[number]._replace(**changes)
    return state._replace(groups=(*state.groups[:number], changed, *state.groups[number + 1 :]))
