"""`fit` goes on when workers are lost, with the result of a run that lost none."""

from __future__ import annotations

import csv
import re
import statistics
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest

from tests.cluster.elastic.job import WORKER, Job, expected, require_expected, seconds_to_next_batch
from tests.cluster.elastic.task import BATCHES, EPOCHS, make_rows
from tests.soak import chaos
from tests.support import namespaces
from tests.support.processes import ProcessGroup, ReservedPorts
from tests.support.switch import Switch

_SECONDS = 120


@pytest.mark.parametrize(
    ("size", "faults", "data"),
    [
        pytest.param(3, {1: ["kill", 12]}, "arrays", marks=[pytest.mark.keras, pytest.mark.quick]),
        pytest.param(3, {0: ["kill", 12]}, "holding", marks=pytest.mark.any_line),
        pytest.param(3, {2: ["kill", "validation"]}, "arrays", marks=pytest.mark.any_line),
        pytest.param(5, {3: ["kill", 12], 1: ["kill", "forming"]}, "arrays", marks=pytest.mark.any_line),
        pytest.param(4, {1: ["raise", 1]}, "arrays", marks=pytest.mark.any_line),
        pytest.param(2, {1: ["kill", "end"]}, "arrays", marks=pytest.mark.any_line),
        pytest.param(2, {1: ["kill", 12]}, "arrays", marks=pytest.mark.any_line),
        pytest.param(2, {1: ["kill", 12]}, "replicas", marks=pytest.mark.any_line),
    ],
)
def test_the_others_train_on_with_the_same_result(
    size: int, faults: Dict[int, Any], data: str, tmp_path: Path
) -> None:
    job = Job(tmp_path, size, data, faults)
    workers = job.run()
    for result in job.results(workers):
        require_expected(result)
    with (tmp_path / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["epoch"]) for row in rows] == list(range(EPOCHS))
    np.testing.assert_allclose([float(row["loss"]) for row in rows], expected()["history"]["loss"], atol=1e-5)
    assert [each.name for each in tmp_path.glob("greatest-*")] == ["greatest-1.weights.h5"]
    lost = ", ".join(job.names[rank] for rank in sorted(faults))
    survivors = [workers[rank] for rank in workers if rank not in faults]
    for worker in survivors:
        assert re.search(
            rf"lost: {re.escape(lost)}\. worker \d \(\S+\) trains on with rank \d of {len(survivors)}",
            worker.log(),
        )
    if "end" in faults[max(faults)]:
        return
    traces_again = data != "arrays" or ["raise", 1] in faults.values()
    for worker in survivors:
        assert ("traced" in worker.log().partition(" trains on with rank ")[2]) == traces_again
    times = [seconds_to_next_batch(worker, workers[max(faults)]) for worker in survivors]
    assert statistics.median(times) < (30 if len(faults) > 1 else 10), (
        times
    )  # 1 to 2 s for one, where nothing else runs


@pytest.mark.parametrize(
    ("size", "asked"),
    [
        pytest.param(2, [0], marks=pytest.mark.keras),
        pytest.param(4, [0, 2], marks=pytest.mark.any_line),
        pytest.param(2, [0, 1], marks=pytest.mark.any_line),
    ],
)
def test_workers_that_sigterm_asks_to_end_leave_after_a_step(
    size: int, asked: List[int], tmp_path: Path
) -> None:
    job = Job(tmp_path, size, "arrays", {rank: ["terminate", 12] for rank in asked})
    workers = job.run()
    for result in job.results(workers):
        require_expected(result)
    left = ", ".join(job.names[rank] for rank in asked)
    for rank, worker in workers.items():
        batches = re.findall(r"^batch \d+ ", worker.log(), re.M)
        if rank in asked:
            assert worker.wait(_SECONDS) == 143, worker.log()
            assert len(batches) in (12, 13)  # another worker may be a step ahead
            who = "all workers" if len(asked) == size else job.names[rank]
            assert f"SIGTERM asked {who} to end. " in worker.log()
        else:
            assert len(batches) == BATCHES * EPOCHS  # none is repeated
            assert f"left: {left}. {job.names[rank]} trains on with rank" in worker.log()
        assert "is lost" not in worker.log()


@pytest.mark.any_line
def test_shuffled_rows_count_once(tmp_path: Path) -> None:
    job = Job(tmp_path, 3, "shuffled", {0: ["kill", 14]})
    for result in job.results(job.run()):
        labels = result["history"]["label"]
        np.testing.assert_allclose(labels, [make_rows()[1].mean()] * EPOCHS, atol=1e-6)
        assert len(set(result["history"]["loss"])) == EPOCHS


@pytest.mark.any_line
@pytest.mark.waits
def test_a_stopped_worker_that_wakes_up_does_not_train_on(tmp_path: Path) -> None:
    job = Job(tmp_path, 3, "arrays", {0: ["stop", 5]})
    workers = job.run()
    for result in job.results(workers):
        require_expected(result)
    end = re.search(r"^ended at \S+ with BootstrapError lost=False: (.*)$", workers[0].log(), re.M)
    assert end is not None, workers[0].log()
    assert end[1].startswith(f"{job.names[0]} does not train on: ")
    assert "result" not in workers[0].log()


@pytest.mark.any_line
@pytest.mark.waits
@pytest.mark.parametrize(
    ("faults", "meet"),
    [({0: ["cut", 12], 1: ["kill after cut", 12]}, 0), ({2: ["mute", 12]}, 0), ({1: ["cut", 4]}, 14)],
)
def test_a_worker_whose_network_is_cut_ends_and_the_others_train_on(
    faults: Dict[int, Any], meet: int, tmp_path: Path
) -> None:
    """Also if it can send nothing but still receives, and if its network comes back before it starts again.

    In the first case another worker is killed, too. The others see at once that a connection has ended, but rank 0, which could
    say why, is cut off.
    """
    reason = namespaces.missing()
    if reason:
        pytest.skip(reason)
    size = 2 + len(faults) + (len(faults) > 1)  # more than half are left
    with Switch(size) as hosts:
        job = Job(tmp_path, size, "arrays", faults, hosts=hosts, meet=meet)
        workers = job.run()
    for result in job.results(workers):
        require_expected(result)
    rank, lost = next(iter(job.lost.items()))
    end = re.search(r"^ended at \S+ with BootstrapError lost=False: (.*)$", lost.log(), re.M)
    assert end is not None, lost.log()
    assert end[1].startswith(f"{job.names[rank]} does not train on: ")
    assert "result" not in lost.log()
    if not meet:
        survivors = [workers[each] for each in workers if each not in faults]
        times = [seconds_to_next_batch(worker, lost) for worker in survivors]
        assert statistics.median(times) < 20, times  # 4 to 5 s, where little else runs


@pytest.mark.any_line
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("generator", "a generator can be read only once; pass arrays or a tf.data.Dataset"),
        ("from_generator", "its from_generator may keep a state of its own; read it from files or arrays"),
        ("callback_list", "its CallbackList was made before fit"),
    ],
)
def test_what_cannot_begin_again_ends_training_and_a_warning_says_so_first(
    data: str, reason: str, tmp_path: Path
) -> None:
    job = Job(tmp_path, 2, data, {1: ["kill", 12]})
    with ReservedPorts(2) as ports, ProcessGroup(tmp_path) as group:
        workers = group.start_workers(ports.addresses, WORKER, job.plan)
        assert workers[0].wait(_SECONDS) == 3, workers[0].log()
        log = workers[0].log()
    assert f"fit will end when a worker is lost: {reason}" in log
    assert log.index("fit will end") < log.index("batch 1 ")
    assert f"{'worker 1'} ({ports.addresses[1]}) is lost" in log


@pytest.mark.any_line
@pytest.mark.parametrize("seed", [38])
def test_random_faults(seed: int, tmp_path: Path) -> None:
    """A round of `make chaos`: one is asked to end while another one fails, then one more. Its other rounds have other seeds."""
    chaos.run_round(seed, 5, tmp_path)


@pytest.mark.parametrize(
    ("size", "faults", "data"),
    [
        pytest.param(3, {1: ["kill", 4]}, "arrays", marks=pytest.mark.keras),
        pytest.param(3, {0: ["kill", 4]}, "shuffled", marks=pytest.mark.any_line),
        pytest.param(2, {1: ["kill", 4]}, "unseeded", marks=pytest.mark.any_line),
        pytest.param(4, {1: ["kill", 4], 3: ["kill", 4]}, "arrays", marks=pytest.mark.any_line),
    ],
)
def test_workers_that_start_again_join_the_others(
    size: int, faults: Dict[int, Any], data: str, tmp_path: Path
) -> None:
    backup = tmp_path / "backup"  # of which those that join read nothing
    job = Job(tmp_path, size, data, faults, meet=14, backup=str(backup), save_freq=3)
    workers = job.run()
    assert not backup.exists()
    for result in job.results(workers):
        if data == "arrays":  # the others are in another order
            require_expected(result)
        labels = result["history"]["label"]
        np.testing.assert_allclose(labels, [make_rows()[1].mean()] * EPOCHS, atol=1e-6)
    survivor = min(set(workers) - set(faults))
    for rank in faults:  # both at once, or one after the other
        for worker in (workers[rank], workers[survivor]):
            assert re.search(rf"^joined: .*{re.escape(job.names[rank])}", worker.log(), re.M)
    later = workers[survivor].log().rpartition("joined: ")[2]
    assert ("traced" in later) == (
        data != "arrays"
    )  # only there no callback of the newcomer runs before the first step


@pytest.mark.any_line
@pytest.mark.parametrize(
    ("rank", "wrong", "reason"),
    [
        (1, "rows", "read different data"),
        (0, "batches", "the dataset to distribute differs between workers"),
        (1, "model", "has other variables than"),
        (2, "exception", "the mistake of a worker that has come back"),
    ],
)
def test_a_worker_that_comes_back_with_something_else_does_not_end_the_others(
    rank: int, wrong: str, reason: str, tmp_path: Path
) -> None:
    job = Job(tmp_path, 3, "arrays", {rank: ["kill", 4]}, meet=14, wrong=wrong)
    workers = job.run()
    for result in job.results(workers):
        require_expected(result)
    assert re.search(rf"^ended at .*{reason}", workers[rank].log(), re.M), workers[rank].log()
