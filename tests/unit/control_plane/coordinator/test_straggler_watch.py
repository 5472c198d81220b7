"""A member is named when it waits much less than the others, window after window."""

from __future__ import annotations

import pytest

from tf_strategies.control_plane.coordinator import suspicion
from tf_strategies.control_plane.coordinator.straggler_watch import StragglerWatch
from tf_strategies.control_plane.messages import Pace

NAMES = ["worker 0 (a:1)", "worker 1 (b:1)", "worker 2 (c:1)"]


class Group:
    """Members that report once a second."""

    def __init__(self, size: int = 3, for_batches: float | None = None) -> None:
        self.watch = StragglerWatch(NAMES[:size], lambda seconds: for_batches)
        self._second = [0.0] * size
        self._waited = [0.0] * size
        self._ended = 0

    def pass_second(self, *shares: float, ended: int = 10) -> list[int]:
        """Lets a second pass in which each member waits this share. Returns the ranks of warnings."""
        self._ended += ended
        named = []
        for rank, share in enumerate(shares):
            self._second[rank] += 1
            self._waited[rank] += share
            clock = self._second[rank] + 1000 * rank  # each has its own
            named.append(self.watch.note(rank, clock, Pace(self._ended, self._waited[rank])))
        return [rank for rank in named if rank is not None]


def test_the_member_that_waits_least_is_named_once_after_three_windows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    group = Group()
    assert [group.pass_second(0.6, 0.1, 0.5) for _ in range(10)] == [[], [], [], [1], *[[]] * 6]
    assert (
        "worker 1 (b:1) is slower than the other workers: for 3 s it has waited in collectives" in caplog.text
    )
    assert "for 10 % of the time, and the others for 55 %" in caplog.text


def test_members_that_wait_alike_are_not_named() -> None:
    group = Group()
    assert not any(group.pass_second(0.6, 0.4, 0.55) for _ in range(20))


def test_a_pause_of_one_member_is_no_reason() -> None:
    group = Group()
    for _ in range(20):
        assert not group.pass_second(0.9, 0.0, 0.9)
        assert not group.pass_second(0.3, 0.3, 0.3)


def test_taking_turns_is_no_reason() -> None:
    group = Group()
    for _ in range(20):
        assert not group.pass_second(0.9, 0.0, 0.9)
        assert not group.pass_second(0.0, 0.9, 0.9)


def test_a_window_is_longer_while_few_collectives_end() -> None:
    group = Group()
    named = [group.pass_second(0.9, 0.9, 0.0, ended=2) for _ in range(11)]
    assert named == [*[[]] * 9, [2], []]


def test_the_same_member_is_named_again_much_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspicion, "QUIET_SECONDS", 0.0)
    group = Group()
    assert [bool(group.pass_second(0.6, 0.1, 0.5)) for _ in range(6)] == [False] * 3 + [True] * 3


def test_of_two_members_the_slower_one_is_named() -> None:
    group = Group(2)
    assert [group.pass_second(0.5, 0.1) for _ in range(4)][-1] == [1]


def test_one_worker_is_never_named() -> None:
    group = Group(1)
    assert not any(group.pass_second(0.0) for _ in range(10))


@pytest.mark.parametrize(
    ("shares", "for_batches", "advice"),
    [
        ((0.7, 0.1), 0.5, ", mostly before it had its next batch. Look at its input"),
        ((0.7, 0.1), 0.1, ", mostly while it computed. Look at its cores or GPUs"),
        ((0.7, 0.1), 0.3, ". Look at its input, its cores"),
        ((0.7, 0.1), None, ". Look at its input, its cores"),
        (
            (0.1, 0.7),
            0.0,
            ". Look at its input, its cores",
        ),  # worker 0 itself is slow, and does not wait for it
    ],
)
def test_the_warning_says_where_time_was_lost(
    shares: tuple, for_batches: float | None, advice: str, caplog: pytest.LogCaptureFixture
) -> None:
    group = Group(2, for_batches)
    assert any(group.pass_second(*shares) for _ in range(4))
    assert f" %{advice}" in caplog.text
