"""The figures of steps are those of the time between `resume` and the last step, and of what was communicated then."""

from __future__ import annotations

from typing import List

import pytest

from tests.unit.trace.records import MILLISECOND, collective
from tf_strategies.callbacks import step_figures
from tf_strategies.callbacks.step_figures import StepMeter
from tf_strategies.collective.exchange.communication_stats import CommunicationStats
from tf_strategies.trace.record import Collective


class Strategy:
    """Counts what it is told, and has a clock in milliseconds."""

    rank = local_rank = 0

    def __init__(self) -> None:
        self.now = 1000.0
        self.collectives: List[Collective] = []
        self._stats = CommunicationStats("none", 0, 0, ())

    def name_of(self, rank: int) -> str:
        return f"worker {rank}"

    def communication_stats(self) -> CommunicationStats:
        return self._stats

    def recorded_collectives(self) -> List[Collective]:
        return self.collectives

    def pass_time(self, milliseconds: float, *, outstanding: float = 0, sent: int = 0) -> None:
        """Lets time pass, at the end of which two packs are outstanding, the first one hidden by half."""
        self.now += milliseconds
        begin, middle = self.now - outstanding, self.now - outstanding / 2
        self.collectives += [
            collective(begin, self.now, instance=0, use=int(begin), name="pack 0 of 2"),
            collective(middle, self.now, instance=1, use=int(begin), name="pack 1 of 2"),
        ]
        stats = self._stats
        self._stats = CommunicationStats(
            "none",
            stats.bytes_sent + sent,
            stats.bytes_received + 2 * sent,
            (),
            seconds_outstanding=stats.seconds_outstanding + outstanding / 1e3,
        )


@pytest.fixture
def strategy(monkeypatch: pytest.MonkeyPatch) -> Strategy:
    found = Strategy()
    monkeypatch.setattr(step_figures.time, "monotonic_ns", lambda: int(found.now * MILLISECOND))
    return found


def test_figures_are_of_the_steps_since_the_last_figures(strategy: Strategy) -> None:
    strategy.pass_time(50, outstanding=40, sent=1)  # before
    meter = StepMeter(strategy)
    assert meter.take() is None
    meter.resume()
    for _ in range(4):
        strategy.pass_time(10, outstanding=4, sent=100)
        meter.step_ended(1)
    assert meter.seconds == pytest.approx(0.04)
    figures = meter.take()
    assert figures is not None
    assert (figures.steps, figures.bytes_sent, figures.bytes_received) == (4, 400, 800)
    assert figures.seconds == pytest.approx(0.04)
    assert figures.step_seconds == pytest.approx(0.01)
    assert figures.steps_per_second == pytest.approx(100)
    assert figures.communication_seconds == pytest.approx(0.016)
    assert figures.hidden_share == pytest.approx(0.5)
    assert figures.exposed_seconds == pytest.approx(0.008)
    assert meter.seconds == 0
    strategy.pass_time(30, outstanding=3)
    meter.step_ended(2)
    later = meter.take()
    assert later is not None
    assert (later.steps, later.bytes_sent) == (2, 0)
    assert later.seconds == pytest.approx(0.03)
    assert later.communication_seconds == pytest.approx(0.003)


def test_communication_while_figures_are_taken_counts_in_the_next(
    strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = StepMeter(strategy)
    meter.resume()
    strategy.pass_time(10, sent=1)
    meter.step_ended(1)
    with monkeypatch.context() as taking:
        taking.setattr(
            strategy, "recorded_collectives", lambda: strategy.pass_time(5, sent=100) or strategy.collectives
        )
        first = meter.take()
    strategy.pass_time(10, sent=1000)
    meter.step_ended(1)
    second = meter.take()
    assert first is not None and second is not None
    assert (first.bytes_sent, second.bytes_sent) == (1, 1100)
    assert second.seconds == pytest.approx(0.015)


def test_a_pause_does_not_count(strategy: Strategy) -> None:
    meter = StepMeter(strategy)
    meter.resume()
    strategy.pass_time(10, outstanding=2, sent=10)
    meter.step_ended(1)
    meter.pause()
    strategy.pass_time(500, outstanding=400, sent=1000)
    meter.pause()
    meter.resume()
    strategy.pass_time(20, outstanding=4, sent=10)
    meter.step_ended(1)
    figures = meter.take()
    assert figures is not None
    assert (figures.steps, figures.bytes_sent) == (2, 20)
    assert figures.seconds == pytest.approx(0.03)
    assert figures.communication_seconds == pytest.approx(0.006)
    assert figures.hidden_share == pytest.approx(0.5)


def test_time_after_the_last_step_does_not_count(strategy: Strategy) -> None:
    meter = StepMeter(strategy)
    meter.resume()
    strategy.pass_time(10)
    meter.step_ended(1)
    strategy.pass_time(70)
    meter.pause()
    assert meter.seconds == pytest.approx(0.01)


def test_one_worker_alone_communicates_nothing(strategy: Strategy) -> None:
    meter = StepMeter(strategy)
    meter.resume()
    strategy.now += 10
    meter.step_ended(1)
    figures = meter.take()
    assert figures is not None
    assert figures.hidden_share is None
    assert figures.exposed_seconds == 0
