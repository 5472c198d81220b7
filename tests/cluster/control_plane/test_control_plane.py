"""Tests the control plane with real processes on loopback: exchanges, loss, leaving, verdicts."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from tests.cluster.control_plane.groups import JOIN_SECONDS, abort_of, joined
from tests.support.processes import wait_until

UNAVAILABLE, MISMATCH, DEADLINE_EXCEEDED = 4, 2, 3
pytestmark = [pytest.mark.any_line, pytest.mark.waits]


@pytest.mark.parametrize("group", [1, 2, 5], indirect=True)
def test_all_learn_one_epoch_and_gather_by_rank(group):
    workers = [group.start(rank, ["exchange", {"rank": rank}], ["barrier"]) for rank in range(group.size)]
    assert len(joined(workers)) == 1
    for worker in workers:
        assert worker.wait(15) == 0
        gathered = json.loads(worker.wait_for_text(r"^GATHERED (.*)$", 1).group(1))
        assert gathered == [{"rank": rank} for rank in range(group.size)]
        assert "aborts=0" in worker.log()


@pytest.mark.parametrize("ending", ["leave", "lose rank 0"])
def test_no_call_of_grpc_outlives_close(group, ending):
    """Its finalizer can hang the interpreter's exit."""
    workers = group.start_all(["barrier"], *([["hold"]] if ending == "lose rank 0" else []))
    if ending == "lose rank 0":
        joined(workers)
        workers[0].kill()
    for worker in workers[1:]:
        worker.wait_for_text("^REMAINING 0$", JOIN_SECONDS)
        assert worker.wait(5) == (3 if ending == "lose rank 0" else 0)


def test_large_payloads_come_whole(group):
    workers = [group.start(rank, ["exchange_text", 700_000 + rank]) for rank in range(3)]
    for worker in workers:
        assert worker.wait(20) == 0
        assert "GATHERED [[0, 700000], [1, 700001], [2, 700002]]" in worker.log()


def require_named_by_survivors(group, victim: int, number: int, seconds: float) -> None:
    workers = group.start_all(["barrier"], ["hold"])
    joined(workers)
    sent = time.monotonic()
    workers[victim].signal(number)
    for rank in {0, 1, 2} - {victim}:
        when, code, message = abort_of(workers[rank])
        assert when - sent < seconds
        assert code == UNAVAILABLE
        assert message.startswith(f"{group.name(victim)} is lost")
        assert workers[rank].wait(5) == 3
        assert workers[rank].log().count("ABORT") == 1


@pytest.mark.quick
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_killed_rank_is_named_by_all_survivors_at_once(group, victim):
    require_named_by_survivors(group, victim, signal.SIGKILL, seconds=2)


def test_a_member_whose_on_abort_breaks_off_is_told_again_and_the_others_are_told(group):
    workers = [group.start(rank, ["barrier"], ["hold"], breaks=1 if rank < 2 else 0) for rank in range(3)]
    joined(workers)
    workers[2].kill()
    for rank in (0, 1):
        _, code, message = abort_of(workers[rank], timeout=5)
        assert code == UNAVAILABLE
        assert f"{group.name(2)} is lost" in message
        assert workers[rank].wait(5) == 3


def test_a_reason_that_is_not_utf8_reaches_all(group):
    workers = [group.start(0, ["barrier"], ["wait_in", 5, "reduce"]), group.start(2, ["barrier"], ["hold"])]
    workers.append(group.start(1, ["barrier"], why="OSError: caf\udce9.png"))
    for worker in workers[:2]:
        _, _, message = abort_of(worker, timeout=JOIN_SECONDS)
        assert "caf" in message
        assert f"{group.name(1)} left the group" in message


@pytest.mark.parametrize("victim", [0, 1])
def test_a_stopped_rank_is_named_by_all_survivors_within_5_seconds(group, victim):
    require_named_by_survivors(group, victim, signal.SIGSTOP, seconds=5)


def test_a_stopped_rank_that_goes_on_hears_that_it_was_lost(group):
    workers = group.start_all(["barrier"], ["hold"])
    joined(workers)
    workers[1].signal(signal.SIGSTOP)
    abort_of(workers[0])
    workers[1].signal(signal.SIGCONT)
    assert abort_of(workers[1])[1] == UNAVAILABLE


@pytest.mark.parametrize("group", [2], indirect=True)
def test_holding_the_interpreter_lock_is_no_loss(group):
    workers = [group.start(0, ["barrier"], ["hold_the_interpreter", 5], ["barrier"])]
    workers.append(group.start(1, ["barrier"], ["barrier"]))
    for worker in workers:
        assert worker.wait(30) == 0


def test_an_exit_without_close_is_a_loss(group):
    workers = [group.start(0, ["barrier"], ["hold"]), group.start(1, ["barrier"], ["exit_without_close"])]
    workers.append(group.start(2, ["barrier"], ["hold"]))
    assert abort_of(workers[0], JOIN_SECONDS)[2].startswith(f"{group.name(1)} is lost")
    assert abort_of(workers[2])[2].startswith(f"{group.name(1)} is lost")


@pytest.mark.quick
def test_leaving_is_no_failure_while_nobody_waits(group, tmp_path):
    go = tmp_path / "go"
    workers = [group.start(rank, ["barrier"], ["hold_for_file", str(go)]) for rank in (0, 2)]
    leaver = group.start(1, ["barrier"])
    assert leaver.wait(JOIN_SECONDS) == 0
    go.touch()
    assert [worker.wait(10) for worker in workers] == [0, 0]


def test_rank_0_stays_until_the_others_have_left(group, tmp_path):
    go = tmp_path / "go"
    first = group.start(0, ["barrier"])
    others = [group.start(rank, ["barrier"], ["hold_for_file", str(go)]) for rank in (1, 2)]
    joined([first, *others])
    others[0].wait_for_text("PASSED", 5)
    assert first.returncode is None
    go.touch()
    assert [worker.wait(5) for worker in (first, *others)] == [0, 0, 0]


@pytest.mark.parametrize("leaver", [0, 1])
def test_waiting_for_one_that_left_is_a_failure_that_names_it(group, leaver):
    workers = [
        group.start(rank, ["barrier"], *([] if rank == leaver else [["wait_in", 7, "all_reduce 'g/7'"]]))
        for rank in range(3)
    ]
    for rank in {0, 1, 2} - {leaver}:
        _, code, message = abort_of(workers[rank], JOIN_SECONDS)
        assert code == UNAVAILABLE
        assert message.startswith(f"{group.name(leaver)} left the group (its script ended) while worker")
        assert "waiting in all_reduce 'g/7'" in message
    assert workers[leaver].wait(5) == 0


@pytest.mark.parametrize("leaver", [0, 1])
def test_the_error_that_ended_a_script_is_told_to_those_that_wait(group, leaver):
    why = "RuntimeError: disk full"
    workers = [
        group.start(
            rank, ["barrier"], *([] if rank == leaver else [["wait_in", 7, "all_reduce 'g'"]]), why=why
        )
        for rank in range(3)
    ]
    for rank in {0, 1, 2} - {leaver}:
        _, code, message = abort_of(workers[rank], JOIN_SECONDS)
        assert code == UNAVAILABLE
        assert message.startswith(f"{group.name(leaver)} left the group (its script ended with {why}) while")
        assert "see its log" in message


def test_a_worker_that_reports_and_leaves_at_once_is_named_with_its_cause(group):
    workers = [
        group.start(rank, ["barrier"], ["wait_in", 5, "all_reduce 'g'"], descriptions={"5": "all_reduce 'g'"})
        for rank in (0, 2)
    ]
    group.start(1, ["barrier"], ["report_and_leave", UNAVAILABLE, "memory ran out", 5, -1])
    for worker in workers:
        _, _, message = abort_of(worker, JOIN_SECONDS)
        assert message.startswith(f"{group.name(1)} reports: memory ran out")


def test_a_mismatch_is_reported_with_every_side_on_all(group):
    texts = ["all_reduce 'g/0': float32[128] sum", "all_reduce 'g/0': float32[256] sum"]
    workers = [group.start(0, ["barrier"], ["hold"], descriptions={"3": texts[0]})]
    workers.append(
        group.start(1, ["barrier"], ["report", MISMATCH, "bad", 3, 0], descriptions={"3": texts[1]})
    )
    workers.append(group.start(2, ["barrier"], ["hold"], descriptions={"3": texts[0]}))
    expected = (
        f"workers disagree about collective 3: {group.name(0)}, {group.name(2)}: {texts[0]}; "
        f"{group.name(1)}: {texts[1]}; run the same script"
    )
    for worker in workers:
        _, code, message = abort_of(worker, JOIN_SECONDS)
        assert code == MISMATCH
        assert message.startswith(expected)


def test_a_loss_is_the_cause_when_a_report_came_before_it(group, tmp_path):
    go, plan = tmp_path / "go", {"collect_seconds": 30}
    report = ["report", UNAVAILABLE, "the connection broke", 5, 1]
    workers = [group.start(0, ["hold_for_file", str(go)], report, **plan)]
    workers += [group.start(rank, ["hold"]) for rank in (1, 2)]
    joined(workers)
    workers[1].signal(signal.SIGSTOP)  # it describes nothing, and is not known to be lost yet
    stopped = os.WSTOPPED | os.WNOHANG
    wait_until(lambda: os.waitid(os.P_PID, workers[1].pid, stopped) is not None, 5, "worker 1 to stop")
    go.touch()
    workers[2].wait_for_text("^ASKED 5$", 5)
    workers[1].signal(signal.SIGKILL)
    for rank in (0, 2):
        assert abort_of(workers[rank])[2].startswith(f"{group.name(1)} is lost")


def test_a_deadline_names_those_that_took_no_part(group):
    workers = [
        group.start(0, ["barrier"], ["report", DEADLINE_EXCEEDED, "all_reduce 'g' waited 600 s", 5, -1])
    ]
    workers += [group.start(rank, ["barrier"], ["hold"]) for rank in (1, 2)]
    for worker in workers:
        _, code, message = abort_of(worker, JOIN_SECONDS)
        assert code == DEADLINE_EXCEEDED
        assert f"{group.name(0)} reports: all_reduce 'g' waited 600 s" in message
        assert "nothing" in message


def test_waiting_crosswise_is_a_mismatch_that_names_each_wait(group):
    workers = [
        group.start(rank, ["barrier"], ["wait_in", rank % 2, f"reduce {rank % 2}"]) for rank in range(3)
    ]
    for worker in workers:
        _, code, message = abort_of(worker, JOIN_SECONDS)
        assert code == MISMATCH
        assert f"{group.name(0)}, {group.name(2)}: collective 0, reduce 0" in message
        assert f"{group.name(1)}: collective 1, reduce 1" in message


@pytest.mark.parametrize("group", [2], indirect=True)
def test_exchanges_of_different_things_fail_on_all(group):
    workers = [group.start(rank, ["exchange", {}, f"thing {rank}"]) for rank in range(2)]
    for worker in workers:
        _, code, message = abort_of(worker, JOIN_SECONDS)
        assert code == MISMATCH
        assert "'thing 0'" in message
        assert "'thing 1'" in message
        worker.wait_for_text("^BROKEN", 5)


@pytest.mark.parametrize("group", [2], indirect=True)
def test_an_exchange_that_one_skips_ends_at_its_deadline(group):
    workers = [group.start(0, ["exchange", {}, "addresses"], timeout=3), group.start(1, ["hold"], timeout=3)]
    for worker in workers:
        _, code, message = abort_of(worker, JOIN_SECONDS)
        assert code == DEADLINE_EXCEEDED
        assert message.startswith(f"{group.name(1)} did not take part in 'addresses' in 3 s")


@pytest.mark.parametrize("group", [2], indirect=True)
def test_a_second_group_can_follow_on_the_same_ports(group):
    for attempt in range(2):
        workers = [group.start(rank, ["barrier"], label=f"{attempt}-{rank}") for rank in range(2)]
        assert [worker.wait(JOIN_SECONDS) for worker in workers] == [0, 0]


@pytest.mark.parametrize("group", [2], indirect=True)
def test_a_worker_restarted_after_a_failure_waits_for_the_next_group(group):
    old = group.start_all(["barrier"], ["hold"])
    joined(old)
    old[0].signal(signal.SIGSTOP)  # ends late
    old[1].kill()
    new = group.start(1, label="restarted", timeout=60)
    old[0].signal(signal.SIGCONT)
    assert old[0].wait(15) == 3
    assert len(joined([new, group.start(0, label="restarted0", timeout=60)])) == 1
