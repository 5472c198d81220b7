"""Whatever goes wrong on one worker ends `fit` on all of them, in time, with an error that names it."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.support.leftovers import nothing_left
from tests.support.processes import ProcessGroup, ReservedPorts, light_environment, wait_until

_SIZE = 3
_START_SECONDS = 90
_SURVIVORS_SECONDS = 5
_EXIT_SECONDS = 2
_ENDED = re.compile(r"ended at (\S+) with (\w+) lost=(\w+): (.*)")
_WORKER = "tests.cluster.collective.failing_fit_worker"


class Job:
    """Three workers that train until something ends them."""

    def __init__(self, group: ProcessGroup, addresses: list[str], difference: str = "none") -> None:
        self.addresses = addresses
        self._group = group
        self._difference = difference

    def start(self, *indices: int) -> None:
        self._group.start_workers(self.addresses, _WORKER, self._difference, only=indices)

    def name_of(self, index: int) -> str:
        return f"worker {index} ({self.addresses[index]})"

    def wait_for_step(self, step: int) -> None:
        for index in range(_SIZE):
            self._group[f"worker{index}"].wait_for_text(rf"^step {step}$", timeout=_START_SECONDS)

    def end_of(self, index: int, timeout: float) -> tuple[float, str, bool, str]:
        """When (monotonic seconds) the worker's `fit` raised, the class, whether it is a WorkerLostError, the message."""
        process = self._group[f"worker{index}"]
        assert process.wait(timeout) == 3, process.log()
        found = _ENDED.search(process.log())
        assert found is not None, process.log()
        return float(found[1]), found[2], found[3] == "True", found[4]


@pytest.mark.parametrize(
    "victim",
    [
        pytest.param(0, marks=pytest.mark.any_line),
        pytest.param(1, marks=[pytest.mark.keras, pytest.mark.matrix, pytest.mark.quick, pytest.mark.smoke]),
    ],
)
def test_a_killed_worker_ends_fit_on_the_survivors_within_5_seconds(victim: int, tmp_path: Path) -> None:
    with ReservedPorts(_SIZE) as ports, ProcessGroup(tmp_path) as group, nothing_left(group, ports.ports):
        job = Job(group, ports.addresses)
        job.start(*range(_SIZE))
        job.wait_for_step(30)
        killed_at = time.monotonic()
        group[f"worker{victim}"].signal(signal.SIGKILL)
        for survivor in set(range(_SIZE)) - {victim}:
            ended_at, kind, lost, message = job.end_of(survivor, timeout=20)
            assert lost, message
            assert kind == "WorkerLostError"
            assert f"{job.name_of(victim)} is lost" in message
            assert ended_at - killed_at < _SURVIVORS_SECONDS
        # Without what `at_exit.end_quickly` does the interpreters take 4 s and more from there.
        assert time.monotonic() - killed_at < _SURVIVORS_SECONDS + _EXIT_SECONDS


@pytest.mark.any_line
@pytest.mark.quick
def test_tfs_run_ends_with_the_failure_and_leaves_nothing_running(tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group:
        run = group.start(
            "tfs-run",
            [sys.executable, "-m", "tf_strategies.launcher.run", "--workers", "3", "-m", _WORKER, "none"],
            env=light_environment(),
        )
        run.wait_for_text(r"worker 1 \| step 20$", timeout=_START_SECONDS)
        pids = {int(i): int(pid) for i, pid in re.findall(r"worker (\d) \| pid (\d+)", run.log())}
        os.kill(pids[1], signal.SIGKILL)
        assert run.wait(timeout=40) == 128 + signal.SIGKILL
        assert len(_ENDED.findall(run.log())) == _SIZE - 1
        wait_until(
            lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids.values()), 5, "the workers' ends"
        )


@pytest.mark.parametrize(
    ("difference", "expected"),
    [
        pytest.param("options", ["bytes_per_pack", "1048576", "2097152"], marks=pytest.mark.any_line),
        pytest.param("model", ["32", "33"], marks=pytest.mark.any_line),
        pytest.param("batch", ["12", "24"], marks=[pytest.mark.quick, pytest.mark.any_line]),
        pytest.param("features", ["8", "9"], marks=pytest.mark.any_line),
    ],
)
def test_a_difference_on_one_worker_is_an_error_on_all(
    difference: str, expected: list[str], tmp_path: Path
) -> None:
    with ReservedPorts(_SIZE) as ports, ProcessGroup(tmp_path) as group:
        job = Job(group, ports.addresses, difference)
        job.start(*range(_SIZE))
        for index in range(_SIZE):
            _, _, _, message = job.end_of(index, timeout=_START_SECONDS)
            assert job.name_of(1) in message, message
            for text in expected:
                assert text in message, message


@pytest.mark.parametrize(
    ("difference", "expected"),
    [
        pytest.param(
            "raises",
            "FileNotFoundError: [Errno 2] No such file or directory: 'caf\\udce9.png'",
            marks=[pytest.mark.keras, pytest.mark.matrix, pytest.mark.quick],
        ),
        pytest.param("runs_out_of_memory", "(its script ended with ", marks=pytest.mark.any_line),
    ],
)
def test_an_exception_on_one_worker_ends_the_others_with_its_name(
    difference: str, expected: str, tmp_path: Path
) -> None:
    with ReservedPorts(_SIZE) as ports, ProcessGroup(tmp_path) as group, nothing_left(group, ports.ports):
        job = Job(group, ports.addresses, difference)
        job.start(*range(_SIZE))
        for index in (0, 2):
            _, _, lost, message = job.end_of(index, timeout=_START_SECONDS)
            assert lost, message
            assert f"{job.name_of(1)} left the group" in message
            assert expected in message


@pytest.mark.waits
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        pytest.param("exits", "left the group (its script ended)", marks=pytest.mark.any_line),
        ("raises_stop_iteration", "wait for each other in different collectives"),
    ],
)
def test_a_worker_that_goes_alone_is_named_on_the_others_within_5_seconds(
    how: str, expected: str, tmp_path: Path
) -> None:
    with ReservedPorts(_SIZE) as ports, ProcessGroup(tmp_path) as group:
        job = Job(group, ports.addresses, how)
        job.start(*range(_SIZE))
        group["worker1"].wait_for_text("^goes alone$", timeout=_START_SECONDS)
        gone_at = time.monotonic()
        for index in (0, 2):
            ended_at, _, _, message = job.end_of(index, timeout=20)
            assert job.name_of(1) in message
            assert expected in message
            assert ended_at - gone_at < _SURVIVORS_SECONDS


@pytest.mark.any_line
@pytest.mark.waits
def test_workers_may_start_10_seconds_apart(tmp_path: Path) -> None:
    with ReservedPorts(_SIZE) as ports, ProcessGroup(tmp_path) as group:
        job = Job(group, ports.addresses)
        job.start(2, 1)
        for index in (1, 2):
            waiting = group[f"worker{index}"]
            waiting.wait_for_text(rf"waits for {re.escape(job.name_of(0))} \([12]\d s\)", _START_SECONDS)
            assert "connected" not in waiting.log()
        job.start(0)
        job.wait_for_step(3)
