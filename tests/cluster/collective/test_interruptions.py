"""Workers that are stopped or interrupted while they train, and strangers at the ports of the data connections."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.cluster.collective.failing_fit_worker import HEARTBEAT_SECONDS
from tests.cluster.collective.test_failures import Job
from tests.support.hostile import Stranger, listening_ports
from tests.support.leftovers import nothing_left
from tests.support.processes import Process, ProcessGroup, ReservedPorts, light_environment, wait_until

_SIZE = 3
_START_SECONDS = 90
_SURVIVORS_SECONDS = 5
_HEEDED_SECONDS = 10
_STANDSTILL_SECONDS = 4  # less than HEARTBEAT_SECONDS, and more than the default with elastic=
_WORKER = "tests.cluster.collective.failing_fit_worker"


def last_step(worker: Process) -> int:
    return int(re.findall(r"^step (\d+)$", worker.log(), re.M)[-1])


@pytest.mark.any_line
def test_strangers_and_a_standstill_do_no_harm_and_a_stopped_worker_is_named_by_the_others(
    tmp_path: Path,
) -> None:
    with ReservedPorts(_SIZE) as ports, ProcessGroup(tmp_path) as group, nothing_left(group, ports.ports):
        job = Job(group, ports.addresses)
        job.start(*range(_SIZE))
        job.wait_for_step(10)
        workers = [group[f"worker{index}"] for index in range(_SIZE)]
        for worker in workers:
            for port, address in listening_ports(worker.pid).items():
                host = "127.0.0.1" if address == "0.0.0.0" else address
                with Stranger(f"{host}:{port}", seed=port) as stranger:
                    stranger.send_nonsense(20)
                    stranger.send_torn_http2()
                    stranger.open_idle(silent=50, greeted=10)
        reached = max(map(last_step, workers))
        for worker in workers:
            wait_until(lambda: last_step(worker) > reached + 10, 30, f"{worker.name} to go on training")

        workers[1].signal(signal.SIGSTOP)
        time.sleep(_STANDSTILL_SECONDS)
        reached = max(map(last_step, workers))
        workers[1].signal(signal.SIGCONT)
        for worker in workers:
            wait_until(
                lambda: last_step(worker) > reached + 10, 30, f"{worker.name} to go on after a standstill"
            )

        stopped = time.monotonic()
        workers[1].signal(signal.SIGSTOP)
        for survivor in (0, 2):
            ended_at, _, lost, message = job.end_of(survivor, timeout=60)
            assert lost, message
            assert f"{job.name_of(1)} is lost" in message
            assert ended_at - stopped < HEARTBEAT_SECONDS + _SURVIVORS_SECONDS
        workers[1].signal(signal.SIGCONT)
        assert job.end_of(1, timeout=60)[2]


def interrupt(process: Process) -> None:
    """Sends SIGINT, and again if it had no effect, as a user presses Ctrl-C again.

    NumPy ignores any exception while it looks for the interfaces of an object. In Keras, which converts the logs of each batch,
    one KeyboardInterrupt in a hundred is lost there.
    """
    for _ in range(3):
        process.signal(signal.SIGINT)
        with contextlib.suppress(AssertionError):
            process.wait(_HEEDED_SECONDS)
            return


@pytest.mark.any_line
@pytest.mark.quick
def test_an_interrupted_worker_is_named_by_the_others(tmp_path: Path) -> None:
    with ReservedPorts(_SIZE) as ports, ProcessGroup(tmp_path) as group, nothing_left(group, ports.ports):
        job = Job(group, ports.addresses)
        job.start(*range(_SIZE))
        job.wait_for_step(10)
        interrupt(group["worker1"])
        assert group["worker1"].wait(60) == -signal.SIGINT
        for survivor in (0, 2):
            _, _, lost, message = job.end_of(survivor, timeout=60)
            assert lost, message
            assert f"{job.name_of(1)} left the group (its script ended with KeyboardInterrupt)" in message


@pytest.mark.any_line
def test_an_interrupt_of_tfs_run_ends_all_workers_with_few_words(tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group, nothing_left(group):
        run = group.start(
            "tfs-run",
            [
                sys.executable,
                "-m",
                "tf_strategies.launcher.run",
                "--workers",
                "3",
                "--grace",
                "60",
                "-m",
                _WORKER,
                "none",
            ],
            env=light_environment(),
        )
        run.wait_for_text(r"worker 1 \| step 10$", timeout=_START_SECONDS)
        pids = [int(pid) for pid in re.findall(r"worker \d \| pid (\d+)", run.log())]
        assert len(pids) == _SIZE
        run.signal(signal.SIGINT)
        assert run.wait(timeout=60) == 128 + signal.SIGINT
        assert run.log().count("Traceback") <= _SIZE, "one for each worker at most"
        assert "killed by" not in run.log()
        assert "SIGKILL" not in run.log()
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
