"""Local steps: what the workers compute equals what NumPy averages, and nothing is sent between two averages."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import time
from pathlib import Path
from typing import Any, Dict, Iterator

import numpy as np
import pytest

from tests.cluster.local_steps.oracle import weights_after
from tests.cluster.local_steps.task import PROGRAMS
from tests.support.processes import Process, ProcessGroup, ReservedPorts

_SECONDS = 120
IN_FRAGMENTS = ["fragments", "overlap", "overlap in loop"]
EXACT = [
    name
    for name, each in PROGRAMS.items()
    if not each.options.quantize and not each.in_loop and name not in IN_FRAGMENTS
]
_SIZE = 3


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Any]:
    """The results of each program, which are equal on all workers."""
    return run(tmp_path_factory.mktemp("programs"), list(PROGRAMS), _SIZE, replicas=1)


def run(folder: Path, names: list[str], size: int, replicas: int) -> Dict[str, Any]:
    with ReservedPorts(size) as ports, ProcessGroup(folder) as group:
        worker = "tests.cluster.local_steps.fit_worker"
        workers = group.start_workers(ports.addresses, worker, json.dumps(names), str(replicas))
        group.require_success(_SECONDS)
        found = [json.loads(re.search("^results (.*)$", each.log(), re.M)[1]) for each in workers]
    for each in found:
        for name in names:
            assert each[name]["weights"] == found[0][name]["weights"]
            assert each[name]["history"] == found[0][name]["history"]
            assert each[name]["evaluated"] == found[0][name]["evaluated"]
    return found[0]


@pytest.mark.any_line
@pytest.mark.parametrize("name", EXACT)
def test_the_workers_compute_what_numpy_does(name: str, trained: Dict[str, Any]) -> None:
    for found, wanted in zip(trained[name]["weights"], weights_after(PROGRAMS[name], _SIZE)):
        np.testing.assert_allclose(found, wanted.ravel(), atol=3e-5)


@pytest.mark.any_line
@pytest.mark.parametrize("name", ["every step", "loop"])
def test_an_average_of_every_step_is_a_synchronous_step(name: str, trained: Dict[str, Any]) -> None:
    alone = weights_after(PROGRAMS[name], 1)
    for found, wanted in zip(trained[name]["weights"], alone):
        np.testing.assert_allclose(found, wanted.ravel(), atol=1e-6)


@pytest.mark.any_line
@pytest.mark.parametrize("name", IN_FRAGMENTS)
def test_fragments_are_averaged_as_numpy_does(name: str, trained: Dict[str, Any]) -> None:
    for found, wanted in zip(trained[name]["weights"], weights_after(PROGRAMS[name], _SIZE)):
        np.testing.assert_allclose(found, wanted.ravel(), atol=1e-6)


@pytest.mark.any_line
@pytest.mark.parametrize(
    ("name", "exactly", "tolerance"),
    [
        ("in 8 bits", "outer optimizer", 0.004),
        ("in 4 bits", "outer optimizer", 0.06),
        ("overlap in 8 bits", "overlap", 0.004),
    ],
)
def test_few_bits_change_little(name: str, exactly: str, tolerance: float, trained: Dict[str, Any]) -> None:
    found, exact = trained[name], trained[exactly]
    assert found["weights"] != exact["weights"]
    for one, other in zip(found["weights"], exact["weights"]):
        np.testing.assert_allclose(one, other, atol=tolerance)


@pytest.mark.any_line
def test_nothing_is_sent_between_averages(trained: Dict[str, Any]) -> None:
    averages = [name for name in trained["averages"]["collectives"] if name.startswith("pack")]
    assert averages == trained["averages"]["collectives"]
    assert len(averages) == 2  # one average: the changes of weights, and the count of rows
    assert len(trained["every step"]["collectives"]) == 2 * 4


@pytest.mark.keras
@pytest.mark.quick
def test_replicas_of_a_worker_take_their_steps_together_and_resume(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        ["outer optimizer", "overlap", "every step", "loop", "resumed", "batches", "shared"],
        2,
        replicas=2,
    )
    for name, size in (("outer optimizer", 2), ("overlap", 2), ("every step", 1), ("loop", 1)):
        for one, wanted in zip(found[name]["weights"], weights_after(PROGRAMS[name], size, 2)):
            np.testing.assert_allclose(one, wanted.ravel(), atol=3e-5)


@contextlib.contextmanager
def two_workers(folder: Path, name: str) -> Iterator[tuple]:
    """Runs a check in which the second worker is lost. Yields both workers, and the address of the second."""
    with ReservedPorts(2) as ports, ProcessGroup(folder) as group:
        worker = "tests.cluster.local_steps.fit_worker"
        yield (*group.start_workers(ports.addresses, worker, json.dumps([name]), "1"), ports.addresses[1])


def require_named(first: Process, name: str, address: str, killed: float) -> None:
    """Requires that the first worker has named the second one as lost, within 5 seconds, and ended well."""
    assert first.wait(_SECONDS) == 0, first.log()
    found = json.loads(re.search("^results (.*)$", first.log(), re.M)[1])[name]
    assert f"worker 1 ({address})" in found["lost"]
    assert found["at"] - killed < 5


@pytest.mark.any_line
@pytest.mark.waits
def test_a_lost_worker_is_noticed_between_averages(tmp_path: Path) -> None:
    with two_workers(tmp_path, "lost") as (first, second, address):
        assert second.wait(_SECONDS) == -signal.SIGKILL
        killed = float(re.search("^killed at (.*)$", second.log(), re.M)[1])
        require_named(first, "lost", address, killed)


@pytest.mark.any_line
@pytest.mark.waits
def test_a_lost_worker_ends_the_wait_for_an_average_that_is_on_its_way(tmp_path: Path) -> None:
    with two_workers(tmp_path, "lost on its way") as (first, second, address):
        first.wait_for_text("waits", timeout=_SECONDS)
        second.wait_for_text("waits", timeout=_SECONDS)
        killed = time.monotonic()
        second.signal(signal.SIGKILL)
        require_named(first, "lost on its way", address, killed)
