"""Channels between real processes: a tf.distribute.Server and its clients."""

from __future__ import annotations

import contextlib
import re
import signal
import time
from pathlib import Path
from typing import Iterator

import pytest

from tests.support.checks import names_of_checks
from tests.support.processes import Process, ProcessGroup, ReservedPorts

# Parameter servers move all their large tensors through channels, on every line.
pytestmark = pytest.mark.any_line
_WORKER = "tests.cluster.native.channel_worker"


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[ProcessGroup, str]]:
    """A server that is up, the group to start its workers in, and its address."""
    with ReservedPorts(1) as ports, ProcessGroup(folder) as group:
        address = ports.addresses[0]
        group.start_preloaded("ps0", "tests.cluster.native.channel_server", address)
        group["ps0"].wait_for_text("serving at", timeout=60)
        yield group, address


def start(group: ProcessGroup, index: int, address: str, what: str, transport: str = "auto") -> Process:
    name = f"worker {index}"
    return group.start_preloaded(name.replace(" ", ""), _WORKER, address, name, transport, what)


@pytest.mark.parametrize(("transport", "wire"), [("auto", "sysv"), ("tcp", "tcp")])
def test_two_workers_at_once_move_tensors_bit_by_bit(transport: str, wire: str, tmp_path: Path) -> None:
    with serving(tmp_path) as (group, address):
        workers = [start(group, index, address, "check", transport) for index in range(2)]
        for worker in workers:
            assert worker.wait(timeout=240) == 0
            assert re.findall(r"^passed (\w+)", worker.log(), re.M) == names_of_checks(_WORKER)
            assert wire in worker.log().partition("transport: ")[2]


def test_a_server_that_dies_ends_the_call_at_once(tmp_path: Path) -> None:
    with serving(tmp_path) as (group, address):
        worker = start(group, 0, address, "loop")
        worker.wait_for_text(r"^step 3$", timeout=120)
        killed = time.time()
        group["ps0"].signal(signal.SIGKILL)
        ended = worker.wait_for_text(r"^ended at ([\d.]+) with (\w+): (.*)$", timeout=30)
        assert float(ended[1]) - killed < 1.0
        assert ended[2] == "UnavailableError"
        failure = worker.wait_for_text(r"^failure: (.*)$", timeout=10)
        assert f"ps 0 ({address})" in failure[1]
        assert "its connection broke" in failure[1] or "is out of reach" in failure[1]
        assert worker.wait(timeout=30) == 0


def test_a_worker_that_dies_leaves_the_server_to_the_others(tmp_path: Path) -> None:
    with serving(tmp_path) as (group, address):
        dying = start(group, 0, address, "loop")
        other = start(group, 1, address, "loop")
        for worker in (dying, other):
            worker.wait_for_text(r"^step 3$", timeout=120)
        dying.signal(signal.SIGKILL)
        done = int(re.findall(r"^step (\d+)$", other.log(), re.M)[-1])
        other.wait_for_text(rf"^step {done + 10}$", timeout=60)
        group["ps0"].signal(signal.SIGUSR1)
        group["ps0"].wait_for_text(r"^channels to worker 0: 1$", timeout=20)
        group["ps0"].signal(signal.SIGUSR2)
        group["ps0"].wait_for_text(r"^channels to worker 0: 0$", timeout=20)
        other.wait_for_text(rf"^step {done + 20}$", timeout=60)
        again = group.start_preloaded("worker0again", _WORKER, address, "worker 0", "auto", "loop")
        again.wait_for_text(r"^step 3$", timeout=120)


def test_the_server_ends_what_waits_for_a_worker(tmp_path: Path) -> None:
    with serving(tmp_path) as (group, address):
        worker = start(group, 0, address, "wait")
        worker.wait_for_text("^waiting$", timeout=120)
        group["ps0"].signal(signal.SIGUSR1)
        ended = worker.wait_for_text(r"^ended with (\w+): (.*)$", timeout=20)
        assert ended[1] == "UnavailableError"
        failure = worker.wait_for_text(r"^failure: (.*)$", timeout=10)
        assert "worker 0 is lost, says the server" in failure[1]
        assert worker.wait(timeout=30) == 0
