"""A slow wire is named when it is slow window after window, and in use."""

from __future__ import annotations

import pytest

from tf_strategies.control_plane.coordinator.wire_watch import WireWatch
from tf_strategies.slow_wire import Sent

NAMES = ["worker 0 (a:1)", "worker 1 (b:1)"]
FAST, SLOW = 100e6, 40e6


class Group:
    """Two members that report once a second what they have sent to each other."""

    def __init__(self) -> None:
        self.watch = WireWatch(NAMES)
        self._sent = [Sent(rank, 1 - rank, 0, 0, 0.0) for rank in range(2)]
        self._second = 0

    def pass_second(self, *rates: float, use: float = 0.9) -> list[tuple[int, ...]]:
        """Lets a second pass in which each member sends at a rate. Returns the subjects of warnings."""
        self._second += 1
        named = []
        for rank, rate in enumerate(rates):
            before = self._sent[rank]
            self._sent[rank] = before._replace(
                messages=before.messages + 1,
                bytes=before.bytes + int(rate * use),
                seconds=before.seconds + use,
            )
            clock = self._second + 1000 * rank  # each has its own
            named.append(self.watch.note(rank, clock, [self._sent[rank]]))
        return [each for each in named if each is not None]


def test_a_slow_wire_is_named_once_after_three_windows(caplog: pytest.LogCaptureFixture) -> None:
    group = Group()
    found = [group.pass_second(FAST, SLOW) for _ in range(10)]
    assert [each for each in found if each] == [[(1, 0)]]
    assert found.index([(1, 0)]) <= 4
    assert "the network from worker 1 (b:1) to worker 0 (a:1) is slow: 40 MB/s" in caplog.text


def test_a_wire_that_recovers_is_not_named() -> None:
    group = Group()
    for _ in range(10):
        assert (
            not group.pass_second(FAST, SLOW) + group.pass_second(FAST, SLOW) + group.pass_second(FAST, FAST)
        )


def test_wires_that_are_slow_in_turns_are_not_named() -> None:
    group = Group()
    assert not any(group.pass_second(FAST, SLOW) + group.pass_second(SLOW, FAST) for _ in range(10))


def test_a_wire_that_is_hardly_used_is_not_named() -> None:
    group = Group()
    assert not any(group.pass_second(FAST, SLOW, use=0.15) for _ in range(10))


def test_members_without_connections_are_no_reason() -> None:
    watch = WireWatch(NAMES)
    assert not any(watch.note(rank, second, []) for second in range(10) for rank in range(2))
