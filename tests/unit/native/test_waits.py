"""The share of time in which a worker waited for the batches of others."""

from __future__ import annotations

import pytest

from tf_strategies import slow_worker
from tf_strategies.native.waits import waited_for_batches

SECOND = 1_000_000_000
BATCHES = {"name": slow_worker.BATCHES}
ROWS = {"name": slow_worker.ROWS}
GRADIENTS = {"name": "pack 0 of 1"}


def records(*collectives: tuple, now: float = 10) -> dict:
    """A record with collectives: what each is, and when it was submitted and ended, in seconds."""
    return {
        "monotonic_ns": int(now * SECOND),
        "collectives": [
            {**what, "submitted_ns": int(begin * SECOND), "ended_ns": int(end * SECOND)}
            for what, begin, end in collectives
        ],
    }


def test_waits_before_steps_count() -> None:
    recorded = records((BATCHES, 6, 7), (ROWS, 7, 7.5), (GRADIENTS, 8, 9))
    assert waited_for_batches(recorded, 100) == pytest.approx(1.5 / 4)


def test_only_the_last_seconds_count() -> None:
    recorded = records((BATCHES, 1, 5), (GRADIENTS, 8, 8.5), (BATCHES, 9, 9.5))
    assert waited_for_batches(recorded, 3) == pytest.approx(0.5 / 2)


def test_a_wait_that_goes_on_counts_until_now() -> None:
    assert waited_for_batches(records((GRADIENTS, 6, 7), (BATCHES, 8, 0)), 100) == pytest.approx(2 / 4)


def test_nothing_is_known_without_such_collectives() -> None:
    assert waited_for_batches(records((GRADIENTS, 6, 7)), 100) is None
    assert waited_for_batches({}, 100) is None
