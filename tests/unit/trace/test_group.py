"""The worker that others wait for is named, and what has not ended is listed."""

from __future__ import annotations

import pytest

from tests.unit.trace.records import collective, record
from tf_strategies.slow_wire import Sent
from tf_strategies.slow_worker import BATCHES
from tf_strategies.trace.chrome import events
from tf_strategies.trace.group import Recorded
from tf_strategies.trace.main import report
from tf_strategies.trace.spans import union_ns


def steps(begins: list[float], size: int) -> Recorded:
    """Steps of 100 ms; each rank submits its collective after so many of them, and all end at 90."""
    ranks = (
        record(
            rank,
            *(collective(100 * step + begin, 100 * step + 90, use=step) for step in range(10)),
            size=size,
        )
        for rank, begin in enumerate(begins)
    )
    return Recorded(list(ranks))


def test_a_union_counts_overlaps_once() -> None:
    assert union_ns([(0, 10), (5, 7), (8, 12), (20, 21), (30, 30), (41, 40)]) == 13
    assert union_ns([]) == 0


def test_the_last_one_is_the_slowest() -> None:
    recorded = steps([10, 80, 20], 3)
    summary = recorded.summary()
    assert len(recorded.meetings) == 10
    assert recorded.seconds() == pytest.approx(0.98)
    assert [round(each.waited * 0.98, 6) for each in summary] == [0.7, 0.0, 0.6]
    assert [round(each.delayed * 0.98, 6) for each in summary] == [0.0, 0.6, 0.0]
    assert [round(each.wire * 0.98, 6) for each in summary] == [0.1, 0.1, 0.1]
    assert recorded.slowest(summary) == 1
    assert any("worker 1 is the slowest" in line for line in report(recorded))


def test_nobody_is_named_when_all_are_alike() -> None:
    recorded = steps([10, 12, 11], 3)
    assert recorded.slowest(recorded.summary()) is None
    assert any("the wire is in use for 80% of the time" in line for line in report(recorded))


def test_one_record_alone_names_nobody() -> None:
    recorded = steps([10], 2)
    assert recorded.missing == ["worker 1"]
    assert recorded.slowest(recorded.summary()) is None


def test_what_has_not_ended_says_who_is_missing() -> None:
    waits = collective(200, 0, instance=3, use=1, name="loss")
    failed = collective(250, 260, instance=4, use=0, name="metric", code=4)
    never_started = collective(300, 0, instance=5, use=-1)
    recorded = Recorded(
        [record(0, waits, failed, never_started), record(1, collective(260, 261, instance=4, use=0))]
    )
    found = {each.name: (seconds, without) for _, each, seconds, without in recorded.unfinished()}
    assert found == {"loss": (pytest.approx(9.8), ["worker 1"]), "metric": (pytest.approx(0.01), [])}
    text = "\n".join(report(recorded))
    assert "worker 0 waited 9.800 s in all_reduce 'loss'; worker 1 had not submitted it" in text


def test_the_trace_has_a_row_for_each_collective_in_flight() -> None:
    first = record(0, collective(10, 50), collective(20, 40, instance=1), collective(60, 0, instance=2))
    other = record(1, collective(30, 50), collective(31, 40, instance=1))
    spans = [event for event in events(Recorded([first, other])) if event["ph"] == "X" and event["pid"] == 0]
    assert [(span["name"], span["tid"], span["ts"], span["dur"]) for span in spans] == [
        ("gradients", 0, 0.0, 40_000.0),
        ("waits for worker 1", 0, 0.0, 20_000.0),
        ("gradients", 1, 10_000.0, 20_000.0),
        ("waits for worker 1", 1, 10_000.0, 11_000.0),
        ("gradients (has not ended)", 0, 50_000.0, 9_940_000.0),
    ]


def test_the_root_of_a_broadcast_does_not_wait() -> None:
    root = record(0, collective(0, 1, kind="broadcast"), collective(90, 100, use=1))
    late = record(1, collective(80, 81, kind="broadcast"), collective(90, 100, use=1))
    recorded = Recorded([root, late])
    assert [round(each.waited * recorded.seconds(), 6) for each in recorded.summary()] == [0.001, 0.0]
    assert recorded.slowest(recorded.summary()) is None


def test_without_a_common_clock_nobody_is_named() -> None:
    first = record(0, collective(0, 100, kind="broadcast"), hosts="two")
    other = record(1, collective(90, 100, kind="broadcast"), hosts="two")
    text = "\n".join(report(Recorded([first, other])))
    assert "could not be compared" in text and "slowest" not in text


def steps_in_two_parts(lates: list[tuple[float, float]]) -> Recorded:
    """Steps of 100 ms; each rank is so late with its batch and with its gradients, and each ends when all have submitted."""
    asked, computed = (max(each[part] for each in lates) for part in (0, 1))
    ranks = []
    for rank, (batch, gradients) in enumerate(lates):
        each = []
        for step in range(10):
            begin = 100 * step
            each.append(collective(begin + batch, begin + asked, instance=0, use=step, name=BATCHES))
            ready = begin + asked
            each.append(collective(ready + gradients, ready + computed + 1, instance=1, use=step))
        ranks.append(record(rank, *each, size=len(lates)))
    return Recorded(ranks)


@pytest.mark.parametrize(
    ("late", "reason"),
    [
        ((40, 5), "mostly before it had its next batch. Look at its input"),
        ((5, 40), "mostly while it computed. Look at its cores or GPUs"),
        ((20, 20), "of the time. Look at its input, its cores"),
    ],
)
def test_the_reason_is_where_the_others_waited(late: tuple[float, float], reason: str) -> None:
    (verdict,) = [
        line for line in report(steps_in_two_parts([(1, 1), late])) if "worker 1 is the slowest" in line
    ]
    assert reason in verdict


def test_records_without_batches_give_no_reason() -> None:
    assert steps([10, 80], 2).summary()[1].delayed_steps is None


def test_the_report_shows_what_was_hidden() -> None:
    packs = [
        collective(begin, begin + 10, instance=begin, name=f"pack {begin // 5} of 2") for begin in (0, 5)
    ]
    (line,) = [line for line in report(Recorded([record(0, *packs, size=1)])) if "  worker 0" in line]
    assert line.endswith("     33%")


def test_a_subgroup_meets_without_the_others() -> None:
    in_part = {"subgroup": 0, "ranks": (0, 2)}
    first = record(0, collective(10, 50), collective(60, 90, **in_part), size=3)
    other = record(1, collective(10, 50), size=3)
    late = record(2, collective(10, 50), collective(80, 90, **in_part), size=3)
    recorded = Recorded([first, other, late])
    assert len(recorded.meetings) == 2
    assert [round(each.waited * recorded.seconds(), 6) for each in recorded.summary()] == [0.02, 0.0, 0.0]
    waits = [event for event in events(recorded) if event["name"].startswith("waits for")]
    assert [(event["pid"], event["name"], event["dur"]) for event in waits] == [
        (0, "waits for worker 2", 20_000.0)
    ]


def test_what_has_not_ended_in_a_subgroup_misses_its_workers_only() -> None:
    waits = collective(200, 0, use=1, name="loss", subgroup=0, ranks=(0, 2))
    records = [record(0, waits, size=3), record(1, size=3), record(2, size=3)]
    text = "\n".join(report(Recorded(records)))
    assert "in all_reduce 'loss' of worker 0, worker 2; worker 2 had not submitted it" in text


@pytest.mark.parametrize("hosts", ["same", "two"])
def test_the_report_names_a_slow_wire_between_hosts(hosts: str) -> None:
    wires = ([Sent(0, 1, 10, 10_000_000, 1.0)], [Sent(1, 0, 10, 10_000_000, 0.1)])
    recorded = Recorded(
        [record(rank, collective(0, 1000), wires=tuple(sent), hosts=hosts) for rank, sent in enumerate(wires)]
    )
    named = any("the network from worker 0 to worker 1 is slow: 10 MB/s" in line for line in report(recorded))
    assert named == (hosts == "two")
