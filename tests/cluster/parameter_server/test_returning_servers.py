"""Servers of strategies with `replicas=2` that are killed and start again while workers train."""

from __future__ import annotations

import datetime
import re
import time
from pathlib import Path

import pytest

from tests.cluster.parameter_server.returning_server_loops import LOOPS
from tests.support.processes import Process, wait_until
from tests.support.servers import ServerCluster

_WORKER = "tests.cluster.parameter_server.returning_server_worker"
_SYNCHRONOUS_WORKER = "tests.cluster.parameter_server.returning_synchronous_worker"
_LOOPS = "tests.cluster.parameter_server.returning_server_loops"
_STEPS = 100
_WORKERS = 2
_END_SECONDS = 120


def ends_of_steps(worker: Process) -> list[float]:
    return [float(at) for at in re.findall(r"^step \d+ at (\S+)", worker.log(), re.M)]


def start_and_wait(cluster: ServerCluster, *arguments: str) -> list[Process]:
    """Starts a cluster. Returns its workers when they have taken most steps of the first epoch."""
    cluster.start(str(_STEPS), *arguments)
    workers = [cluster[f"worker{index}"] for index in range(_WORKERS)]
    most = _STEPS * 3 // 4
    wait_until(lambda: all(len(ends_of_steps(each)) >= most for each in workers), _END_SECONDS, "the steps")
    return workers


def require_trained(worker: Process, killed_at: float) -> None:
    """Requires that no kernel was ever back near its first value after a server was killed."""
    steps = re.findall(r"^step \d+ at (\S+) moved (.*)$", worker.log(), re.M)
    moved = [(float(end), [float(each) for each in far.split()]) for end, far in steps]
    before = max((end, far) for end, far in moved if end <= killed_at)[1]
    after = [far for end, far in moved if end > killed_at]
    for kernel, far in enumerate(before):
        assert min(each[kernel] for each in after) > far / 2


@pytest.mark.parametrize(
    ("killed", "optimizer", "transport"),
    [
        pytest.param(0, "adam", "auto", marks=pytest.mark.keras),
        pytest.param(1, "adam", "grpc", marks=pytest.mark.any_line),
    ],
)
def test_fit_goes_on_with_the_copy_when_a_killed_server_has_started_again(
    killed: int, optimizer: str, transport: str, tmp_path: Path
) -> None:
    with ServerCluster(tmp_path, _WORKER, servers=2, workers=_WORKERS) as cluster:
        workers = start_and_wait(cluster, optimizer, transport)
        cluster[f"ps{killed}"].kill()
        at = time.time()
        again = cluster.start_one("ps", killed, str(_STEPS), optimizer, transport, again=" again")
        updates = []
        for each in workers:
            assert each.wait(_END_SECONDS) == 0
            (end,) = re.findall(r"^ended with (\d+) updates$", each.log(), re.M)
            updates.append(int(end))
            require_trained(each, at)
        (when,) = re.findall(r"has its variables back, as they were at (.*)$", again.log(), re.M)
        copied = datetime.datetime.fromisoformat(when).timestamp()
        assert copied < at
        lost = sum(copied < end <= at for each in workers for end in ends_of_steps(each))
        # Updates that have arrived belong to steps that end later. The other server may count a step that was cut off.
        taken = 2 * _STEPS * _WORKERS
        assert taken - lost - 2 * _WORKERS <= max(updates) <= taken + _WORKERS
        for server in (again, cluster[f"ps{1 - killed}"]):
            assert server.wait(20) == 0


@pytest.mark.any_line
def test_a_server_without_a_copy_ends_training(tmp_path: Path) -> None:
    with ServerCluster(tmp_path, _WORKER, servers=2, workers=_WORKERS) as cluster:
        workers = start_and_wait(cluster, "adam", "grpc")
        for index in (0, 1):
            cluster[f"ps{index}"].kill()
        again = [
            cluster.start_one("ps", index, str(_STEPS), "adam", "grpc", again=" again") for index in (0, 1)
        ]
        for each in workers:
            assert each.wait(_END_SECONDS) != 0
            assert re.search(
                r"ServerLostError: ps \d \(.*\) came back without its variables.* start all servers",
                each.log(),
            )
        for each in again:
            each.kill()  # it would wait for its workers


def test_synchronous_fit_ends_as_if_no_server_had_been_lost(tmp_path: Path) -> None:
    with ServerCluster(tmp_path, _SYNCHRONOUS_WORKER, servers=2, workers=_WORKERS) as cluster:
        arguments = ("40", "graph")
        cluster.start(*arguments)
        workers = [cluster[f"worker{index}"] for index in range(_WORKERS)]
        servers = []
        for index, steps in ((1, 25), (0, 50)):
            wait_until(
                lambda steps=steps: all(len(ends_of_steps(each)) >= steps for each in workers),
                _END_SECONDS,
                "the steps",
            )
            cluster[f"ps{index}"].kill()
            servers.append(cluster.start_one("ps", index, *arguments, again=" again"))
        for each in workers:
            each.wait_for_text(r"^batch 20$", _END_SECONDS)
            assert len(re.findall(r"repeats \d+ steps", each.log())) == 2
            assert "ended with a difference of 0.0, 83 and 83 steps" in each.log()
        servers[0].kill()
        servers[0] = cluster.start_one("ps", 1, *arguments, again=" a third time")
        for each in workers:
            assert each.wait(_END_SECONDS) != 0
            assert re.search(
                r"ServerLostError: ps 1 \(.*(Other loops end|steps outside of `fit`)", each.log()
            )
        for server in servers:
            server.kill()  # it would wait for its workers


def test_loops_begin_again_or_end_when_a_server_is_killed(tmp_path: Path) -> None:
    with ServerCluster(tmp_path, _LOOPS, servers=2, workers=1) as cluster:
        cluster.start(str(tmp_path))
        worker = cluster["worker0"]
        servers = {index: cluster[f"ps{index}"] for index in (0, 1)}
        for loop, index in LOOPS.items():
            worker.wait_for_text(f"in {loop}: kill ps {index}", _END_SECONDS)
            servers[index].kill()
            (tmp_path / f"killed in {loop}").touch()
            if loop == "train_on_batch":
                worker.wait_for_text(r"train_on_batch ended with ps 1 .* Other loops end", _END_SECONDS)
            servers[index] = cluster.start_one("ps", index, str(tmp_path), again=f" after {loop}")
        assert worker.wait(_END_SECONDS) == 0
        after, before = map(
            float, re.search(r"^trained with a loss of (.*), before (.*)$", worker.log(), re.M).groups()
        )
        assert after <= before  # an untrained model would have a greater one
        for server in servers.values():
            assert server.wait(20) == 0
