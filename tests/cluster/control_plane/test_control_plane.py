"""The control plane with real processes on loopback: joining, agreement, loss, leaving, verdicts."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.support.processes import Process, ProcessGroup, ReservedPorts, tf_config, wait_until

SCRIPT = str(Path(__file__).with_name("control_plane_worker.py"))
UNAVAILABLE, MISMATCH, DEADLINE_EXCEEDED = 4, 2, 3
JOIN_SECONDS = 20
HOST = "127.0.0.1"
pytestmark = [pytest.mark.any_line, pytest.mark.waits]


class Group:
    """Control-plane workers on reserved ports."""

    def __init__(self, processes: ProcessGroup, addresses: tuple[str, ...]) -> None:
        self.processes, self.addresses = processes, addresses

    @property
    def size(self) -> int:
        return len(self.addresses)

    def name(self, rank: int) -> str:
        return f"worker {rank} ({self.addresses[rank]})"

    def start(
        self, rank: int, *actions: list, label: str | None = None, config: str | None = None, **plan
    ) -> Process:
        config = config or tf_config({"worker": self.addresses}, "worker", rank)
        text = json.dumps({"actions": actions, **plan})
        name = label or f"worker{rank}"
        return self.processes.start_python(name, SCRIPT, text, env={"TF_CONFIG": config})

    def start_all(self, *actions: list, **plan) -> list[Process]:
        return [self.start(rank, *actions, **plan) for rank in range(self.size)]


@pytest.fixture
def group(tmp_path, request):
    with ReservedPorts(getattr(request, "param", 3)) as ports, ProcessGroup(tmp_path) as processes:
        yield Group(processes, ports.addresses)
        processes.print_logs()  # shown by pytest when the test fails


def config_of(addresses: list[str], index: int) -> str:
    return tf_config({"worker": addresses}, "worker", index)


def joined(workers: list[Process]) -> set[str]:
    return {worker.wait_for_text(r"^JOINED (\d+)", JOIN_SECONDS).group(1) for worker in workers}


def abort_of(worker: Process, timeout: float = 10) -> tuple[float, int, str]:
    found = worker.wait_for_text(r"^ABORT (\S+) (\d+) (.*)$", timeout)
    return float(found.group(1)), int(found.group(2)), found.group(3)


def refusal_of(worker: Process, timeout: float = JOIN_SECONDS) -> str:
    assert worker.wait(timeout) == 4
    return worker.wait_for_text(r"^REFUSED (.*)$", 1).group(1)


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


def test_a_late_rank_0_is_waited_for_with_progress(group):
    early = [group.start(rank, timeout=60) for rank in (2, 1)]
    for worker in early:
        worker.wait_for_text(r"worker \d .* waits for worker 0 .*refused", 15)
    early.append(group.start(0, timeout=60))
    assert len(joined(early)) == 1


def test_a_late_member_is_waited_for_and_one_that_dies_meanwhile_can_be_restarted(group):
    first, lost = group.start(0, timeout=60), group.start(1, label="lost", timeout=60)
    first.wait_for_text(re.escape(f"{group.name(0)} waits for {group.name(2)}"), 15)
    lost.wait_for_text(f"wait for {re.escape(group.name(2))}", 5)
    lost.kill()
    assert len(joined([first, group.start(1), group.start(2)])) == 1


@pytest.mark.quick
def test_missing_members_are_named_at_the_deadline(group):
    message = refusal_of(group.start(0, timeout=2))
    assert f"{group.name(1)}, {group.name(2)} did not join {group.name(0)} within 2 s" in message


def test_a_member_names_a_missing_rank_0_at_the_deadline(group):
    message = refusal_of(group.start(1, timeout=2))
    assert f"{group.name(1)} did not join a group within 2 s: {group.name(0)}: " in message
    assert "Connection refused" in message


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
def test_the_second_process_of_an_index_is_refused_and_the_first_stays(group, tmp_path):
    go = tmp_path / "go"
    workers = group.start_all(["barrier"], ["hold_for_file", str(go)], ["barrier"])
    joined(workers)
    message = refusal_of(group.start(1, label="second"))
    assert f"two processes are {group.name(1)}" in message
    assert len(re.findall(r"ipv4:127\.0\.0\.1:\d+", message)) == 2
    assert f"process {workers[1].pid} on" in message
    go.touch()
    assert [worker.wait(15) for worker in workers] == [0, 0, 0]


def test_a_second_rank_0_names_the_address_that_is_taken(group):
    workers = group.start_all(["barrier"], ["hold"])
    joined(workers)
    message = refusal_of(group.start(0, label="second"))
    assert message.startswith(
        f"{group.name(0)} cannot listen on {group.addresses[0]}: the port is taken; end the process"
    )
    assert workers[0].returncode is None


def test_an_address_of_another_machine_is_refused(group):
    config = tf_config({"worker": ["192.0.2.77:2222", group.addresses[1]]}, "worker", 0)
    assert "it is no address of this machine" in refusal_of(group.start(0, config=config))


def test_a_port_that_another_program_listens_on_is_named(group):
    with socket.create_server((HOST, 0)) as other:
        taken = f"{HOST}:{other.getsockname()[1]}"
        message = refusal_of(group.start(0, config=config_of([taken, group.addresses[1]], 0)))
    assert message.startswith(
        f"worker 0 ({taken}) cannot listen on {taken}: the port is taken; end the process"
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_a_host_name_that_does_not_resolve_is_named_by_all(group, rank):
    config = config_of(["no-such-host.invalid:2222", group.addresses[1]], rank)
    message = refusal_of(group.start(rank, config=config, timeout=2))
    assert "worker 0 (no-such-host.invalid:2222)" in message
    assert "resolved" in message
    assert "TF_CONFIG" in message
    assert "\n" not in message


def test_a_port_on_which_another_program_answers_is_named_at_the_deadline(group):
    with socket.create_server((HOST, 0)) as other:
        taken = f"{HOST}:{other.getsockname()[1]}"
        message = refusal_of(group.start(1, config=config_of([taken, group.addresses[1]], 1), timeout=2))
    assert f"worker 1 ({group.addresses[1]}) did not join a group within 2 s: worker 0 ({taken}): " in message
    assert "check the address" in message


def test_workers_of_different_versions_are_refused_with_both_named(group):
    workers = [group.start(0), group.start(1, version="0.0.7"), group.start(2)]
    for worker in workers:
        message = refusal_of(worker)
        assert re.search(r"disagree about tf_strategies version: '[^']+' against '0\.0\.7'", message), message
        assert group.name(0) in message
        assert group.name(1) in message


@pytest.mark.quick
def test_different_options_are_named_with_both_values_on_all(group):
    workers = [group.start(rank, options={"chunk_bytes": 4096 if rank == 1 else 8192}) for rank in range(3)]
    for worker in workers:
        message = refusal_of(worker)
        assert "disagree about option chunk_bytes: 8192 against 4096" in message
        assert group.name(0) in message
        assert group.name(1) in message


def test_latecomers_hear_of_a_disagreement_too(group):
    workers = [group.start(0, options={"x": 1}), group.start(1, options={"x": 2})]
    assert "option x: 1 against 2" in refusal_of(workers[1])
    assert "option x: 1 against 2" in refusal_of(group.start(2, options={"x": 1}))
    assert "option x: 1 against 2" in refusal_of(workers[0])


def test_another_cluster_is_named_with_both_addresses(group):
    other = tf_config({"worker": [*group.addresses[:2], "127.0.0.1:9"]}, "worker", 1)
    workers = [group.start(0), group.start(1, config=other), group.start(2)]
    for worker in workers:
        message = refusal_of(worker)
        assert f"the address of worker 2: '{group.addresses[2]}' against '127.0.0.1:9'" in message


def test_another_size_is_named(group):
    other = tf_config({"worker": group.addresses[:2]}, "worker", 1)
    workers = [group.start(0), group.start(1, config=other), group.start(2)]
    assert all("group size: 3 against 2" in refusal_of(worker) for worker in workers)


def test_a_stranger_to_the_cluster_is_refused_alone(group):
    with ReservedPorts(1) as extra:
        stranger = tf_config({"worker": [*group.addresses, *extra.addresses]}, "worker", 3)
        first = group.start(0)
        message = refusal_of(group.start(3, config=stranger))
        assert "worker 3" in message
        assert "is not part of the cluster" in message
        assert len(joined([first, group.start(1), group.start(2)])) == 1


def test_a_second_job_on_the_same_ports_does_no_harm(group, tmp_path):
    go = tmp_path / "go"
    workers = group.start_all(["barrier"], ["hold_for_file", str(go)], ["barrier"])
    joined(workers)
    second = [group.start(rank, label=f"second{rank}") for rank in range(3)]
    assert all("taken" in refusal_of(worker) or "two processes" in refusal_of(worker) for worker in second)
    go.touch()
    assert [worker.wait(15) for worker in workers] == [0, 0, 0]


def test_random_bytes_and_idle_connections_do_no_harm(group, tmp_path):
    go = tmp_path / "go"
    first = group.start(0, ["hold_for_file", str(go)], ["barrier"])
    host, port = group.addresses[0].split(":")

    def listening() -> bool:
        try:
            socket.create_connection((host, int(port)), 1).close()
        except OSError:
            return False
        return True

    wait_until(listening, JOIN_SECONDS, "rank 0 to listen")
    guests = [socket.create_connection((host, int(port)), 5) for _ in range(40)]
    try:
        for guest in guests[::2]:
            guest.sendall(bytes(range(256)) * 256)
        before = _resident_kib(first.pid)
        workers = [first, group.start(1, ["barrier"]), group.start(2, ["barrier"])]
        assert len(joined(workers)) == 1
        assert _resident_kib(first.pid) - before < 50_000
        go.touch()
        assert [worker.wait(15) for worker in workers] == [0, 0, 0]
    finally:
        for guest in guests:
            guest.close()


def _resident_kib(pid: int) -> int:
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()).group(1))


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
