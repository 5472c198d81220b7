"""Servers and workers of the parameter-server strategies that are lost, come back, come late or cannot start."""

from __future__ import annotations

import contextlib
import re
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.cluster.parameter_server.failing_servers_worker import HEARTBEAT_SECONDS, PAUSES_AFTER
from tests.support.processes import wait_until
from tests.support.servers import ServerCluster

_WORKER = "tests.cluster.parameter_server.failing_servers_worker"
_START_SECONDS = 90
_QUORUM_SECONDS = 6
_NOTICE_SECONDS = 6
_STANDSTILL_SECONDS = 4


def wait_for_clients(address: str, count: int) -> None:
    """Waits until so many processes have tried to reach a server that is not there, and lets their tries fail.

    gRPC opens no second connection while one is open that nobody answers.
    """
    host, _, port = address.rpartition(":")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server((host, int(port))))
        server.settimeout(_START_SECONDS)
        for _ in range(count):
            stack.enter_context(server.accept()[0])


def steps_of(log: str) -> list[float]:
    """When each step of a worker was done."""
    return [float(at) for at in re.findall(r"^step \d+ at (\S+)", log, re.M)]


@pytest.mark.parametrize(
    "killed",
    [
        pytest.param(1, marks=pytest.mark.quick),
        pytest.param(0, marks=pytest.mark.any_line),
    ],
)
def test_a_killed_worker_does_not_stop_asynchronous_others_and_may_come_back(
    killed: int, tmp_path: Path
) -> None:
    with ServerCluster(tmp_path, _WORKER, servers=2, workers=3) as cluster:
        cluster.start("async", "40", "60", f"{killed}:10")
        for index in {0, 1, 2} - {killed}:
            assert cluster[f"worker{index}"].wait(_START_SECONDS) == 0
        assert cluster[f"worker{killed}"].wait(5) == -signal.SIGKILL
        again = cluster.start_one("worker", killed, "async", "40", "60", again=" again")
        assert again.wait(_START_SECONDS) == 0
        assert "counted 130 130" in again.log()  # of three times 40, and of 10 before the kill
        for index in (0, 1):
            assert cluster[f"ps{index}"].wait(20) == 0
            cluster.require_served(index)


@pytest.mark.waits
def test_a_killed_worker_lowers_the_quorum_of_synchronous_others_and_may_come_back(tmp_path: Path) -> None:
    meeting = tmp_path / "worker 1 is back"
    with ServerCluster(tmp_path, _WORKER, servers=2, workers=3) as cluster:
        cluster.start("sync", "500", "60", "1:10", f"waits:{meeting}")
        assert cluster["worker1"].wait(_START_SECONDS) == -signal.SIGKILL
        again = cluster.start_one("worker", 1, "sync", "20", "60", "", f"creates:{meeting}", again=" again")
        assert again.wait(_START_SECONDS) == 0
        for name in ("worker0", "worker2", "ps0", "ps1"):
            assert cluster[name].wait(_START_SECONDS) == 0, name
        for index in (0, 1):
            cluster.require_served(index)
        for index in (0, 2):
            log = cluster[f"worker{index}"].log()
            ends = steps_of(log)
            for part in (ends[:PAUSES_AFTER], ends[PAUSES_AFTER:]):
                assert max(after - before for before, after in zip(part, part[1:])) < _QUORUM_SECONDS
            counted = re.search(
                r"counted=\((\d+), (\d+), (\d+)\), dropped=\((\d+), (\d+), (\d+)\)\) 500$", log, re.M
            )
            assert counted, log
            # The killed one's 10 steps, and those since it came back; what it brought twice or late is dropped.
            assert int(counted[1]) == int(counted[3]) == 500
            assert int(counted[2]) + int(counted[5]) == 30
            assert int(counted[2]) > 10


def test_a_step_whose_worker_is_killed_while_it_applies_it_is_applied_once(tmp_path: Path) -> None:
    """The first server has done its part when worker 1 is killed, and the second goes on; worker 0 takes over."""
    with ServerCluster(tmp_path, _WORKER, servers=2, workers=2) as cluster:
        cluster.start("slowly", "4", "60")
        for step in (1, 2):
            cluster["worker0"].wait_for_text(f"^step {step} ", timeout=_START_SECONDS)
        cluster["ps1"].wait_for_text("(?s)(the slow server begins.*){3}", timeout=10)
        cluster["ps0"].wait_for_text("(?s)(the quick server has ended.*){3}", timeout=10)
        cluster["worker1"].kill()
        assert cluster["worker0"].wait(_START_SECONDS) == 0
        for step in (1, 2, 3, 4):
            assert (
                f"step {step} quick=[{step}. {step}. {step}. {step}.] slow=[{step}. "
                in cluster["worker0"].log()
            )
        assert cluster["ps1"].log().count("the slow server begins") == 4
        for index in (0, 1):
            cluster[f"ps{index}"].kill()  # They would wait for worker 1 to come back.


@pytest.mark.waits
@pytest.mark.parametrize(
    ("kind", "others"),
    [
        pytest.param("async", [], marks=pytest.mark.quick),
        pytest.param("sync", [], marks=pytest.mark.any_line),
        pytest.param("sync", ["worker1"], marks=pytest.mark.any_line),
    ],
)
def test_a_lost_server_is_an_error_on_all_workers(kind: str, others: list[str], tmp_path: Path) -> None:
    with ServerCluster(tmp_path, _WORKER, servers=2, workers=2) as cluster:
        cluster.start(kind, "100000", "5")
        for index in (0, 1):
            cluster[f"worker{index}"].wait_for_text("^step 20 ", timeout=_START_SECONDS)
        lost_at = time.monotonic()
        for name in ("ps1", *others):
            cluster[name].kill()
        for name in {"worker0", "worker1"} - set(others):
            worker = cluster[name]
            assert worker.wait(30) == 1
            found = re.search(r"ended at (\S+) lost=True ServerLostError: (.*)", worker.log())
            assert found, worker.log()
            assert float(found[1]) - lost_at < _NOTICE_SECONDS
            assert f"{cluster.name_of('ps', 1)} no longer answers" in found[2]
        # Their errors ended the workers, and nobody starts them again.
        assert cluster["ps0"].wait(20) == 1
        end = re.search(rf"^{re.escape(cluster.name_of('ps', 0))} ends: (.*)", cluster["ps0"].log(), re.M)
        assert end, cluster["ps0"].log()
        for index in (0, 1):
            assert f"{cluster.name_of('worker', index)} is lost" in end[1]


@pytest.mark.waits
def test_a_server_that_stops_for_too_long_ends_its_workers(tmp_path: Path) -> None:
    with ServerCluster(tmp_path, _WORKER, servers=2, workers=1) as cluster:
        cluster.start("async", "100000", "5")
        worker = cluster["worker0"]
        worker.wait_for_text("^step 20 ", timeout=_START_SECONDS)
        cluster["ps1"].signal(signal.SIGSTOP)
        time.sleep(_STANDSTILL_SECONDS)
        reached = len(steps_of(worker.log()))
        cluster["ps1"].signal(signal.SIGCONT)
        wait_until(lambda: len(steps_of(worker.log())) > reached + 10, 30, "the worker to go on")

        cluster["ps1"].signal(signal.SIGSTOP)
        assert worker.wait(HEARTBEAT_SECONDS + 8) == 1
        assert f"ServerLostError: {cluster.name_of('ps', 1)} no longer answers" in worker.log()
        assert "it hangs, or the network is cut" in worker.log()
        cluster["ps1"].kill()
        assert cluster["ps0"].wait(20) == 1


@pytest.mark.any_line
@pytest.mark.waits
def test_a_server_that_stops_ends_what_waits_for_it_outside_of_steps(tmp_path: Path) -> None:
    moments = [
        "writes_a_checkpoint",
        "looks_at_the_step",
        "ends_an_epoch",
        "writes_weights_and_ends",
        "makes_a_model",
    ]
    module = "tests.cluster.parameter_server.stopped_server_worker"
    with ServerCluster(tmp_path, module, servers=1, workers=len(moments)) as cluster:
        server = cluster.start_one("ps", 0, str(tmp_path))
        workers = [
            cluster.start_one("worker", rank, str(tmp_path), moment) for rank, moment in enumerate(moments)
        ]
        for worker in workers:
            worker.wait_for_text("^comes$", timeout=_START_SECONDS)
        server.signal(signal.SIGSTOP)
        stopped_at = time.monotonic()
        (tmp_path / "stopped").touch()
        for worker, moment in zip(workers, moments):
            assert worker.wait(max(0.0, stopped_at + 10 - time.monotonic())) == 1, moment
            assert f"ServerLostError: {cluster.name_of('ps', 0)} no longer answers" in worker.log()
        server.kill()


@pytest.mark.any_line
@pytest.mark.waits
def test_workers_may_start_before_the_servers(tmp_path: Path) -> None:
    with ServerCluster(tmp_path, _WORKER, servers=2, workers=2) as cluster:
        for index in (1, 0):
            cluster.start_one("worker", index, "async", "5", "60")
        wait_for_clients(cluster.addresses["ps"][0], 2)
        assert "connected" not in cluster["worker0"].log() + cluster["worker1"].log()
        for index in (1, 0):
            cluster.start_one("ps", index, "async", "5", "60")
        for log in cluster.require_good_end(timeout=_START_SECONDS):
            assert len(steps_of(log)) == 5


@pytest.mark.any_line
@pytest.mark.waits
def test_servers_that_cannot_start_or_do_not_come_are_named(tmp_path: Path) -> None:
    with ServerCluster(tmp_path, _WORKER, servers=2, workers=2) as cluster:
        host, _, port = cluster.addresses["ps"][0].rpartition(":")
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind((host, int(port)))
            taken.listen()
            server = cluster.start_one("ps", 0, "async", "5", "5")
            worker = cluster.start_one("worker", 1, "async", "5", "2")
            lonely = cluster.start_one("ps", 1, "async", "5", "2")
            assert server.wait(_START_SECONDS) == 1
            assert f"BootstrapError: {cluster.name_of('ps', 0)} could not serve" in server.log()
            assert worker.wait(_START_SECONDS) == 1
            waited = f"{cluster.name_of('worker', 1)} waited 2 s for {cluster.name_of('ps', 0)}"
            assert waited in worker.log()
            assert lonely.wait(_START_SECONDS) == 1
            for index in (0, 1):
                assert f"{cluster.name_of('worker', index)} has never come" in lonely.log()
