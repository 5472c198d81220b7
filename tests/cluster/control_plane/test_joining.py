"""Tests who may join a group, with real processes on loopback: late, missing, differing and unknown workers."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from tests.cluster.control_plane.groups import JOIN_SECONDS, joined, refusal_of
from tests.support.processes import ReservedPorts, tf_config, wait_until

HOST = "127.0.0.1"
pytestmark = [pytest.mark.any_line, pytest.mark.waits]


def config_of(addresses: list[str], index: int) -> str:
    return tf_config({"worker": addresses}, "worker", index)


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
