"""Survivors find one another and agree on who goes on: the rule for every case, and the calls over real connections."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import re
import threading
import time
from typing import Iterator

import pytest

from tests.support.processes import ReservedPorts, wait_until
from tf_strategies.arbiter.asking import Arbiter
from tf_strategies.arbiter.serving import ArbiterServer
from tf_strategies.arbiter.votes import Vote, Votes
from tf_strategies.cluster import Cluster, Task
from tf_strategies.control_plane.coordinator import Coordinator
from tf_strategies.control_plane.local_link import LocalLink
from tf_strategies.control_plane.roll_call import Roll, call_the_roll
from tf_strategies.control_plane.server import ControlServer
from tf_strategies.errors import BootstrapError

pytestmark = pytest.mark.any_line

SECRET = b"a secret of this test's cluster"
EPOCH = 77


# ---- the rule


@pytest.mark.parametrize("size", range(1, 8))
def test_of_two_groups_without_a_common_rank_one_at_most_goes_on(size):
    ranks = range(size)
    groups = [
        set(members)
        for count in range(1, size + 1)
        for members in itertools.combinations(ranks, count)
        if not Roll(members[0], size, frozenset(), 1).objection(members)
    ]
    assert set(ranks) in groups
    assert all(one & other for one in groups for other in groups)
    # The rule is no stricter than that needs: each set that is refused has an accepted one beside it.
    for count in range(1, size):
        for members in map(set, itertools.combinations(ranks, count)):
            assert members in groups or set(ranks) - members in groups


@pytest.mark.parametrize("size", range(2, 7))
def test_those_that_stay_decide_without_the_leavers(size):
    def accepted(leavers: frozenset[int], members: tuple[int, ...]) -> bool:
        return not Roll(members[0], size, frozenset(), 1, leavers=leavers).objection(members)

    for count in range(1, size):
        for leavers in map(frozenset, itertools.combinations(range(size), count)):
            staying = [rank for rank in range(size) if rank not in leavers]
            sets = [
                members
                for number in range(1, len(staying) + 1)
                for members in itertools.combinations(staying, number)
            ]
            know = [set(members) for members in sets if accepted(leavers, members)]
            do_not_know = [set(members) for members in sets if accepted(frozenset(), members)]
            assert set(staying) in know
            assert all(one & other for one in know for other in know + do_not_know)


def test_newcomers_do_not_count_for_the_majority():
    roll = Roll(1, 4, frozenset(), min_workers=3, newcomers=2)
    assert "only 2 of 4 workers found one another" in roll.objection((1, 2, 4, 5))
    assert not roll.objection((0, 1, 4))


def test_who_has_tried_to_form_a_group_goes_on_with_enough_of_it():
    """Rank 1 does not know whether 0 trains alone since: it has lost it while they formed a group of two."""
    alone = Roll(1, 3, frozenset(), 1, perhaps_formed=frozenset({(0, 1)}))
    assert "only 1 of 2 workers found one another again" in alone.objection((1, 2))
    assert not alone.objection((0, 1, 2))
    leader = Roll(1, 3, frozenset(), 1)
    leader.note_arrival(2, [(0, 2)])
    leader.note_arrival(2, [])  # of an earlier call, late
    assert "only 1 of 2 workers found one another again" in leader.objection((1, 2))
    newcomer_first = Roll(0, 1, frozenset(), 1, newcomers=1, perhaps_formed=frozenset({(1, 0)}))
    assert newcomer_first.objection((0,))
    assert not Roll(0, 1, frozenset(), 1, newcomers=1, perhaps_formed=frozenset({(0, 1)})).objection((0,))


def test_half_of_a_group_needs_the_vote_of_its_arbiter():
    roll = Roll(2, 4, frozenset(), 1, newcomers=1, has_arbiter=True)
    assert (roll.objection((2, 3)), roll.half((2, 3, 4))) == ("", {2, 3})
    assert (roll.objection((0, 1)), roll.half((0, 1))) == ("", {0, 1})
    assert (roll.objection((1, 2, 3)), roll.half((1, 2, 3))) == ("", set())
    assert "no majority" in roll.objection((2, 4))
    assert Roll(1, 4, frozenset(), 1, leavers=frozenset({0, 3}), has_arbiter=True).half((2,)) == {2}
    perhaps = Roll(0, 3, frozenset(), 1, perhaps_formed=frozenset({(0, 1)}), has_arbiter=True)
    assert "only 1 of 2 workers found one another again" in perhaps.objection((0, 2))


def test_fewer_than_min_workers_do_not_go_on():
    roll = Roll(0, 4, frozenset({1}), min_workers=4)
    assert "only 3 of 4 workers are left, and min_workers is 4" in roll.objection((0, 2, 3))


@pytest.mark.parametrize(
    ("roll", "below", "above", "patient", "expected"),
    [
        (Roll(0, 3, frozenset({1}), 1), set(), {2}, False, (0, 2)),  # all are here
        (Roll(0, 3, frozenset({1}), 1), set(), set(), False, None),  # waits for rank 2
        (Roll(0, 3, frozenset({1}), 1), set(), set(), True, (0,)),  # waits no longer
        (Roll(2, 3, frozenset({0}), 1), set(), set(), False, None),  # rank 1 may lead
        (Roll(2, 3, frozenset({0}), 1), {1}, set(), True, None),  # rank 1 leads
        (Roll(2, 3, frozenset({0, 1}), 1), set(), set(), False, (2,)),  # nobody else can lead
        (Roll(1, 4, frozenset({0}), 1), set(), {2, 3}, False, (1, 2, 3)),
        (
            Roll(0, 2, frozenset(), 1, newcomers=2),
            set(),
            {1, 2},
            False,
            None,
        ),  # waits for the second newcomer
        (Roll(0, 2, frozenset(), 1, newcomers=2), set(), {1, 2}, True, (0, 1, 2)),
        (Roll(1, 4, frozenset(), 1, leavers=frozenset({0, 3})), set(), {2}, False, (1, 2)),
        (Roll(2, 2, frozenset(), 1, newcomers=2), set(), {3}, True, None),  # a newcomer never leads
    ],
)
def test_the_lowest_rank_decides_when_it_knows_enough(roll, below, above, patient, expected):
    roll.below, roll.above = below, above
    assert roll.members(patient) == expected


# ---- over connections


def cluster_of(addresses: list[str], rank: int) -> Cluster:
    return Cluster({"worker": tuple(addresses)}, Task("worker", rank))


class Calls:
    """Calls the roll on a thread for each survivor."""

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses
        self._pool = concurrent.futures.ThreadPoolExecutor(8)

    def begin(
        self,
        rank: int,
        lost: set[int],
        *,
        patience: float = 20.0,
        secret: bytes = SECRET,
        epoch: int = EPOCH,
        newcomers: int = 0,
        perhaps_formed: frozenset[tuple[int, ...]] = frozenset(),
        arbiter: Arbiter | None = None,
    ) -> concurrent.futures.Future:
        """The last ranks are newcomers."""
        cluster = cluster_of(self.addresses, rank)
        size = len(self.addresses) - newcomers
        roll = Roll(
            rank,
            size,
            frozenset(lost),
            1,
            newcomers,
            perhaps_formed=perhaps_formed,
            has_arbiter=arbiter is not None,
        )

        def ask_arbiter(half: frozenset[int], names: tuple[str, ...]) -> str:
            return "" if arbiter is None else arbiter.objection(Vote(epoch, half, names))

        def call() -> tuple[int, ...]:
            following = call_the_roll(
                cluster,
                cluster.worker_tasks,
                roll,
                epoch=epoch,
                patience=patience,
                secret=secret,
                tls=None,
                ask_arbiter=ask_arbiter,
            )
            return tuple(sorted(task.index for task in following.worker_tasks))

        return self._pool.submit(call)


@pytest.fixture
def calls() -> Iterator[Calls]:
    with ReservedPorts(4) as ports:
        yield Calls(ports.addresses)


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_the_survivors_of_one_loss_decide_without_waiting(calls, lost):
    start = time.monotonic()
    survivors = [rank for rank in range(4) if rank != lost]
    found = [calls.begin(rank, {lost}) for rank in survivors]
    assert [each.result(20) for each in found] == [tuple(survivors)] * 3
    assert time.monotonic() - start < 10  # half of the patience


def test_the_leader_hears_which_groups_may_have_formed(calls):
    found = [
        calls.begin(rank, {0}, perhaps_formed=frozenset({(0, 3)} if rank == 3 else ())) for rank in (1, 2, 3)
    ]
    for each in found:
        with pytest.raises(
            BootstrapError, match=r"does not train on: only 1 of 2 workers found one another again"
        ):
            each.result(20)


def test_newcomers_take_part(calls):
    found = [calls.begin(rank, set(), newcomers=2) for rank in (3, 1, 2, 0)]
    assert [each.result(20) for each in found] == [(0, 1, 2, 3)] * 4


def test_a_newcomer_that_does_not_come_costs_the_patience(calls):
    found = [calls.begin(rank, set(), newcomers=2, patience=0.5) for rank in (0, 1, 3)]
    assert [each.result(20) for each in found] == [(0, 1, 3)] * 3


def test_the_order_in_which_they_begin_does_not_matter(calls):
    found = []
    for rank in (3, 1, 2):
        found.append(calls.begin(rank, {0}))
        time.sleep(0.3)
    assert [each.result(20) for each in found] == [(1, 2, 3)] * 3


def test_a_loss_that_nobody_knows_of_costs_the_patience(calls):
    found = [calls.begin(rank, {3}, patience=0.5) for rank in (0, 1)]  # and rank 2 never calls
    assert [each.result(20) for each in found] == [(0, 1)] * 2  # half of them, with rank 0
    found = [calls.begin(rank, {0}, patience=0.5) for rank in (1, 2)]  # half of them, without rank 0
    for each in found:
        with pytest.raises(BootstrapError, match=r"does not train on: only 2 of 4 workers found one another"):
            each.result(20)


@contextlib.contextmanager
def an_arbiter() -> Iterator[Arbiter]:
    with ReservedPorts(1) as ports:
        server = ArbiterServer(ports.addresses[0], Votes(), SECRET, None, print)
        try:
            yield Arbiter(ports.addresses[0], SECRET, None, within=5.0)
        finally:
            server.stop()


def test_of_two_halves_that_do_not_find_one_another_one_goes_on(calls):
    with an_arbiter() as arbiter:
        halves = ((0, 1), (2, 3))
        found = [
            calls.begin(rank, set(range(4)) - set(half), patience=5.0, arbiter=arbiter)
            for half in halves
            for rank in half
        ]
        ends = [each.exception(20) for each in found]
        (winner,) = (half for half in halves if ends[half[0]] is None)
        assert [found[rank].result() for rank in winner] == [winner, winner]
        for rank in set(range(4)) - set(winner):
            assert "only 2 of 4 workers found one another, and the arbiter at " in str(ends[rank])
            assert f"refuses it: the other half goes on, worker {winner[0]}" in str(ends[rank])
    late = [calls.begin(rank, {0, 1}, patience=5.0, arbiter=arbiter, epoch=EPOCH + 1) for rank in (2, 3)]
    for each in late:
        assert re.search(
            r"only 2 of 4 workers found one another, and the arbiter at \S+ does not answer",
            str(each.exception(20)),
        )


def test_another_epoch_another_secret_and_a_lost_rank_are_left_out(calls):
    members = [calls.begin(rank, {3}, patience=1.0) for rank in (0, 1)]
    lost = calls.begin(3, set(), patience=1.0)
    of_another_epoch = calls.begin(2, set(), patience=1.0, epoch=EPOCH + 1)
    assert [each.result(20) for each in members] == [(0, 1)] * 2
    for each in (lost, of_another_epoch):
        with pytest.raises(BootstrapError, match="does not train on"):
            each.result(20)
    members = [calls.begin(rank, {3}, patience=1.0) for rank in (0, 1)]
    stranger = calls.begin(2, {3}, patience=1.0, secret=b"another secret of another cluster")
    assert [each.result(20) for each in members] == [(0, 1)] * 2
    with pytest.raises(BootstrapError, match="only 1 of 4 workers found one another"):
        stranger.result(20)


@contextlib.contextmanager
def coordinator_of(cluster: Cluster) -> Iterator[Coordinator]:
    coordinator = Coordinator(cluster, {}, 60.0, lambda seconds: None)
    coordinator.start()
    server = ControlServer("worker 0", cluster.address_of(cluster.task), 4, SECRET, coordinator.post)
    try:
        yield coordinator
    finally:
        server.stop()
        coordinator.stop()


def test_who_finds_a_newer_group_ends_at_once(calls):
    alone = cluster_of(calls.addresses, 0).without([Task("worker", rank) for rank in (1, 2, 3)])
    with coordinator_of(alone) as newer:
        member = LocalLink(newer, lambda link, message: None)
        task, terms = {"rank": 0, "task": "worker 0"}, {"process": "this one", "terms": {}}
        member.send({"type": "hello", **task, **terms})
        wait_until(lambda: newer._life.running, 10, "the newer group")
        start = time.monotonic()
        with pytest.raises(
            BootstrapError,
            match=r"worker 2 .* does not train on: the group of worker 0 .* goes on without it",
        ):
            calls.begin(2, set()).result(20)
        assert time.monotonic() - start < 10


def test_who_finds_the_group_that_has_failed_tries_again(calls):
    with coordinator_of(cluster_of(calls.addresses, 0)) as old:
        epoch = old._life.epoch
        calling = calls.begin(2, {1, 3}, epoch=epoch)
        assert not concurrent.futures.wait([calling], 0.5).done
    leader = calls.begin(0, {1, 3}, epoch=epoch)
    assert leader.result(20) == calling.result(20) == (0, 2)


def test_a_group_that_is_forming_may_yet_fail_and_so_refuses_nobody_for_good(calls):
    with coordinator_of(cluster_of(calls.addresses, 0)):
        found = [calls.begin(rank, {3}, patience=1.0) for rank in (1, 2)]
        assert not concurrent.futures.wait(
            found, 2.5
        ).done  # they neither end nor go on without rank 0, which answers
    leader = calls.begin(0, {3}, patience=5.0)
    assert [each.result(20) for each in (leader, *found)] == [(0, 1, 2)] * 3


def test_nothing_is_left_running(calls):
    before = set(threading.enumerate())
    found = [calls.begin(rank, {0}) for rank in (1, 2, 3)]
    for each in found:
        each.result(20)

    def none_left() -> bool:
        new = set(threading.enumerate()) - before
        return not any(each.name.startswith("tf_strategies") for each in new)

    wait_until(none_left, 10, "the ends of the threads")
