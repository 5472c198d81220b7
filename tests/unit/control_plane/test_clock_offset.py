"""The offset of rank 0's clock comes from the shortest round trip."""

from __future__ import annotations

from tf_strategies.control_plane.clock_offset import ClockOffset


def test_there_is_no_offset_before_the_first_round_trip() -> None:
    assert ClockOffset().estimate() is None


def test_the_shortest_round_trip_decides_and_bounds_the_error() -> None:
    clock = ClockOffset()
    clock.note(sent_ns=1_000, at_ns=500_000, received_ns=9_000)
    clock.note(sent_ns=20_000, at_ns=521_050, received_ns=20_100)
    clock.note(sent_ns=30_000, at_ns=0, received_ns=39_000)
    assert clock.estimate() == (501_000, 50)


def test_an_answer_from_the_future_does_not_count() -> None:
    clock = ClockOffset()
    clock.note(sent_ns=2_000, at_ns=0, received_ns=1_000)
    assert clock.estimate() is None


def test_old_round_trips_are_forgotten() -> None:
    clock = ClockOffset()
    clock.note(sent_ns=0, at_ns=7, received_ns=0)
    for _ in range(60):
        clock.note(sent_ns=0, at_ns=105, received_ns=10)
    assert clock.estimate() == (100, 5)
