"""No order of events lets two groups train: every state of few workers is looked at."""

from __future__ import annotations

import pytest

from tests.support.successions import SplitBrainError, reachable
from tf_strategies.control_plane.roll_call import Roll
from tf_strategies.control_plane.roll_call import roll as roll_module

pytestmark = pytest.mark.any_line


@pytest.mark.parametrize(("size", "groups", "changes"), [(2, 5, True), (3, 4, False), (4, 3, False)])
def test_two_groups_never_train(size, groups, changes):
    states = reachable(size, groups, changes=changes)
    assert states > 10_000


@pytest.mark.parametrize(("size", "further", "groups"), [(1, 2, 3), (2, 1, 3)])
def test_two_groups_never_train_where_new_workers_join(size, further, groups):
    states = reachable(size, groups, further=further)
    assert states > 10_000


@pytest.mark.parametrize(
    ("size", "groups", "changes", "further"),
    [(2, 4, True, 0), (3, 3, True, 0), (2, 3, True, 1)],
)
def test_two_groups_never_train_with_an_arbiter(size, groups, changes, further):
    states = reachable(size, groups, changes=changes, further=further, arbiter=True)
    assert states > 5_000


def test_with_an_arbiter_half_of_a_group_that_has_perhaps_formed_is_not_enough(monkeypatch):
    monkeypatch.setattr(
        Roll, "_is_enough_of", lambda roll, attempt, again: roll_module._is_enough(again, attempt)
    )
    with pytest.raises(SplitBrainError, match="train after"):
        reachable(2, 4, changes=False, arbiter=True)


def test_a_majority_of_the_last_group_is_not_enough():
    """Without the groups that may have formed, the same search finds two groups that train."""

    def of_the_last_group_alone(roll: Roll, members: tuple[int, ...]) -> str:
        return Roll(roll.rank, roll.size, roll.lost, 1).objection(members)

    with pytest.raises(SplitBrainError, match="train after"):
        reachable(3, 4, changes=False, rule=of_the_last_group_alone)
