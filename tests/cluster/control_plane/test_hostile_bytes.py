"""Strangers at the ports of a job, while it forms and while it runs: the job is unharmed and its memory bounded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cluster.control_plane.groups import JOIN_SECONDS, Group, joined
from tests.support.hostile import Stranger, listening_ports
from tests.support.leftovers import nothing_left
from tests.support.processes import Process, ProcessGroup, ReservedPorts, wait_until

pytestmark = [pytest.mark.any_line, pytest.mark.waits]
_MOST_KIB = 64 << 10  # how much more memory a process may hold under attack


@pytest.fixture
def group(tmp_path):
    with ReservedPorts(3) as ports, ProcessGroup(tmp_path) as processes:
        with nothing_left(processes, ports.ports):
            yield Group(processes, ports.addresses)
        processes.print_logs()


def resident_kib(worker: Process) -> int:
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{worker.pid}/status").read_text()).group(1))


def wait_for_listening(worker: Process, address: str) -> None:
    port = int(address.rpartition(":")[2])
    wait_until(lambda: port in listening_ports(worker.pid), JOIN_SECONDS, f"{worker.name} to listen")


def hello(rank: int, task: str, **terms) -> dict:
    return {"type": "hello", "rank": rank, "task": task, "process": "a stranger", "terms": terms}


def attack(stranger: Stranger) -> None:
    """All that does not pretend to be a member of the job."""
    stranger.send_nonsense(40)
    stranger.send_torn_http2()
    assert stranger.call_elsewhere() in ("UNIMPLEMENTED", "UNAVAILABLE", "DEADLINE_EXCEEDED")
    for messages in (
        [b"\xff" * 1000],
        [b"[" * 100_000],
        [b"x" * (4 << 20)],
        [{"type": "leave"}],
        [{"type": "abort", "code": 4, "message": "stop"}],
        [{"type": "report", "code": 4, "message": "stop", "instance": 0, "peer": 0, "epoch": 1}],
        [hello(7, "worker 7")],
        [hello(-1, "worker 1")],
        [hello(1 << 80, "worker 1")],
        [hello(2, "worker 1")],
        [{**hello(1, "worker 1"), "terms": "mine"}],
        [{"type": "hello", "rank": "1", "task": 1}],
        [hello(9, "worker 9"), *[{"type": "waiting", "instance": 1}] * 2000],
    ):
        answers, _ = stranger.join_with(*messages)
        assert all(answer["type"] == "refused" for answer in answers), answers


def test_a_job_forms_while_strangers_are_at_its_port(group):
    first = group.start(0, ["barrier"], timeout=90)
    wait_for_listening(first, group.addresses[0])
    before = resident_kib(first)
    with Stranger(group.addresses[0], seed=1) as stranger:
        attack(stranger)
        stranger.open_idle(silent=300, greeted=300)
        others = [group.start(rank, ["barrier"], timeout=90) for rank in (1, 2)]
        assert all(worker.wait(90) == 0 for worker in others)
        assert resident_kib_at_end(first) - before < _MOST_KIB
    assert first.wait(15) == 0
    assert "aborts=0" in first.log()


def resident_kib_at_end(worker: Process) -> int:
    """The most memory it ever held, while it is still there; 0 when it has ended."""
    try:
        return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{worker.pid}/status").read_text()).group(1))
    except (OSError, AttributeError):
        return 0


def test_a_running_job_is_unharmed_by_strangers_at_its_port(group, tmp_path):
    go = tmp_path / "go"
    workers = group.start_all(["barrier"], ["hold_for_file", str(go)], ["exchange", {"still": "here"}])
    joined(workers)
    before = resident_kib(workers[0])
    with Stranger(group.addresses[0], seed=2) as stranger:
        attack(stranger)
        for index in (1, 2):
            answers, _ = stranger.join_with(hello(index, f"worker {index}"))
            assert [answer["type"] for answer in answers] == ["refused"]
            assert "two processes are" in answers[0]["message"]
        stranger.open_idle(silent=300, greeted=300)
        assert resident_kib(workers[0]) - before < _MOST_KIB
        go.touch()
        assert [worker.wait(20) for worker in workers] == [0, 0, 0]
    assert all("aborts=0" in worker.log() and "GATHERED" in worker.log() for worker in workers)
