"""Communication is hidden while the worker computes what it submits next."""

from __future__ import annotations

import pytest

from tests.unit.trace.records import collective
from tf_strategies.trace.overlap import hidden_share


def pack(number: int, submitted: float, ended: float, *, packs: int = 2, use: int = 0):
    return collective(submitted, ended, instance=7 + number, use=use, name=f"pack {number} of {packs}")


def test_packs_of_a_reduction_are_hidden_until_the_last_one_is_submitted() -> None:
    # The first ends before the second is submitted: 4 ms are hidden of 4 + 6.
    assert hidden_share([pack(0, 10, 14), pack(1, 20, 26)]) == pytest.approx(0.4)
    assert hidden_share([pack(1, 20, 26), pack(0, 10, 14)]) == pytest.approx(0.4)


def test_a_collective_is_hidden_until_the_last_submission_before_its_end() -> None:
    overlapping = [collective(0, 10, name="a"), collective(3, 12, name="b"), collective(8, 9, name="c")]
    assert hidden_share(overlapping) == pytest.approx(8 / 12)


def test_a_collective_that_may_be_waited_for_is_exposed() -> None:
    assert hidden_share([collective(0, 10, name="rows"), collective(11, 20, name="loss")]) == 0
    assert hidden_share([pack(0, 0, 10, packs=1), pack(0, 11, 20, packs=1)]) == 0


def test_packs_of_different_steps_do_not_belong_together() -> None:
    steps = [
        pack(number, 100 * use + number, 100 * use + 50, use=use) for use in range(3) for number in (0, 1)
    ]
    assert hidden_share(steps) == pytest.approx(3 * 1 / 150)


def test_what_has_failed_or_not_ended_does_not_count() -> None:
    good = [pack(0, 10, 14), pack(1, 20, 26)]
    assert hidden_share([*good, collective(0, 0), collective(30, 90, code=4)]) == pytest.approx(0.4)


def test_no_communication_has_no_share() -> None:
    assert hidden_share([]) is None
    assert hidden_share([collective(5, 5)]) is None
