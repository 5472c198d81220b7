"""Tests the division of variables into fragments, and when each is due."""

from __future__ import annotations

import pytest

from tf_strategies.local_steps.division import divided
from tf_strategies.local_steps.schedule import Schedule

pytestmark = pytest.mark.any_line


def test_layers_of_one_size_are_dealt_out_in_turn() -> None:
    layers = [400, 400, 400, 400, 400, 400]
    assert divided(layers, 2) == [[0, 2, 4], [1, 3, 5]]
    assert divided(layers, 1) == [[0, 1, 2, 3, 4, 5]]


def test_fragments_have_about_equal_bytes_and_a_large_variable_is_whole() -> None:
    sizes = [7, 1000, 3, 300, 300, 5, 100, 300]
    found = divided(sizes, 3)
    assert sorted(number for part in found for number in part) == list(range(len(sizes)))
    assert [1] in found
    others = [sum(sizes[number] for number in part) for part in found if part != [1]]
    assert max(others) - min(others) <= 300


def _dues(schedule: Schedule, steps: range) -> list[tuple[int, list[int]]]:
    return [(step, due) for step in steps for due in [schedule.due(step)] if due]


def test_each_fragment_is_due_every_so_many_steps() -> None:
    assert _dues(Schedule(4, 1), range(1, 9)) == [(4, [0]), (8, [0])]
    found = _dues(Schedule(7, 3), range(1, 15))
    assert found == [(2, [0]), (4, [1]), (7, [2]), (9, [0]), (11, [1]), (14, [2])]


def test_a_cycle_begins_where_all_weights_were_averaged() -> None:
    schedule = Schedule(4, 2)
    assert _dues(schedule, range(1, 4)) == [(2, [0])]
    schedule.restart(3)
    assert _dues(schedule, range(4, 8)) == [(5, [0]), (7, [1])]


def test_steps_that_come_several_at_a_time_leave_no_fragment_out() -> None:
    assert _dues(Schedule(4, 2), range(3, 13, 3)) == [(3, [0]), (6, [1]), (9, [0]), (12, [1])]
    assert _dues(Schedule(4, 2), range(10, 30, 10)) == [(10, [0, 1]), (20, [0, 1])]
