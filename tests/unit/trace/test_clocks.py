"""Clocks are aligned by the host, by round trips and by collectives."""

from __future__ import annotations

from tests.unit.trace.records import MILLISECOND, collective, record
from tf_strategies.trace.clocks import align


def test_processes_of_one_host_share_a_clock() -> None:
    assert align([record(0, offset=(0, 0)), record(1, offset=(500, 10))])[1] == (0, 0)


def test_round_trips_give_the_shift_and_its_error() -> None:
    records = [record(0, hosts="two", offset=(0, 0)), record(1, hosts="two", offset=(5 * MILLISECOND, 200))]
    assert align(records)[1] == (5 * MILLISECOND, 200)


def test_collectives_bound_the_shift() -> None:
    """Worker 1's clock is 100 ms behind: what both did between 200 and 204 ms it has between 100 and 104 ms."""
    first = record(0, collective(200, 204), collective(300, 301, use=1), hosts="two")
    other = record(1, collective(103, 104), collective(200, 201, use=1), hosts="two")
    shift, error = align([first, other])[1]
    assert abs(shift - 100 * MILLISECOND) <= error == MILLISECOND


def test_both_together_are_better_than_either() -> None:
    first = record(0, collective(200, 202), hosts="two", offset=(0, 0))
    other = record(1, collective(100, 102), hosts="two", offset=(101 * MILLISECOND, 2 * MILLISECOND))
    assert align([first, other])[1] == (100.5 * MILLISECOND, 1.5 * MILLISECOND)


def test_a_clock_that_was_set_is_not_believed() -> None:
    first = record(0, collective(200, 202), hosts="two", offset=(0, 0))
    other = record(1, collective(100, 102), hosts="two", offset=(9000 * MILLISECOND, 10))
    assert align([first, other])[1] == (100 * MILLISECOND, 2 * MILLISECOND)


def test_failed_and_unfinished_collectives_say_nothing() -> None:
    first = record(0, collective(200, 201), collective(200, 201, use=1), collective(5, 6, use=2), hosts="two")
    other = record(
        1,
        collective(100, 0),
        collective(100, 101, use=1, code=4),
        collective(7, 8, use=2, kind="broadcast"),
        hosts="two",
    )
    assert align([first, other])[1] == (0, -1)


def test_contradictions_of_a_clock_that_drifts_are_an_error() -> None:
    first = record(0, collective(200, 201), collective(900, 901, use=1), hosts="two")
    other = record(1, collective(100, 101), collective(790, 791, use=1), hosts="two")
    shift, error = align([first, other])[1]
    assert abs(shift - 105 * MILLISECOND) <= MILLISECOND
    assert error >= 4 * MILLISECOND
