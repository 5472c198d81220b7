"""Survivors that call the roll, in every order of messages, waits, kills and cuts: they agree, and none waits for ever."""

from __future__ import annotations

import pytest

from tests.support.roll_calls import World, explore
from tf_strategies.control_plane.roll_call.survivor import Outcome

pytestmark = pytest.mark.any_line

NOBODY: set[int] = set()


@pytest.mark.parametrize(
    ("size", "lost", "kills", "cuts"),
    [
        (2, {0: NOBODY, 1: NOBODY}, 1, 1),
        (3, {0: NOBODY, 1: NOBODY, 2: NOBODY}, 0, 0),
        (3, {1: {0}, 2: {0}}, 1, 2),
        (4, {0: {3}, 2: NOBODY, 3: {0}}, 0, 0),  # 1 was killed, 0 and 3 cannot reach each other
    ],
)
def test_every_order_ends_with_an_agreement(size, lost, kills, cuts):
    ended, stuck = explore(World(size, lost, kills, cuts))
    assert ended
    assert not stuck
    for world in ended:
        for rank, outcome in world.outcomes.items():
            if outcome.reason:
                assert not outcome.tasks
                continue
            assert f"worker {rank}" in outcome.tasks
            leader = world.outcomes[min(int(task.split()[1]) for task in outcome.tasks)]
            assert leader.tasks == outcome.tasks
        groups = [outcome.tasks for outcome in world.outcomes.values() if outcome.tasks]
        assert all(one & other for one in groups for other in groups)


def test_who_waits_long_enough_goes_on_with_all():
    ended, stuck = explore(World(3, {0: NOBODY, 1: NOBODY, 2: NOBODY}, 0, 0, patient=True))
    assert ended
    assert not stuck
    everyone = frozenset({"worker 0", "worker 1", "worker 2"})
    assert all(
        list(world.outcomes.values()) == [Outcome(everyone, led=True), *[Outcome(everyone)] * 2]
        for world in ended
    )
