"""`fit` goes on when workers are lost, with the result of a run that lost none."""

from __future__ import annotations

import csv
import functools
import json
import re
import signal
import statistics
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest

from tests.cluster.elastic.task import BATCH, EPOCHS, ROWS, make_model, make_rows
from tests.support.processes import Process, ProcessGroup, ReservedPorts

_SECONDS = 120
_WORKER = "tests.cluster.elastic.fit_worker"
_BATCHES = -(-ROWS // BATCH)  # of an epoch


@functools.cache
def expected() -> Dict[str, Any]:
    """The result of one process with the joint batches."""
    x, y = make_rows()
    model = make_model()
    history = model.fit(
        x, y, batch_size=BATCH, shuffle=False, epochs=EPOCHS, verbose=0, validation_data=(x, y)
    )
    return {"history": history.history, "weights": [each.ravel() for each in model.get_weights()]}


class Job:
    """Workers with faults, by rank."""

    def __init__(self, folder: Path, size: int, data: str, faults: Dict[int, List[Any]]) -> None:
        self._plan = json.dumps({"data": data, "faults": faults, "folder": str(folder)})
        self._folder, self._size, self._faults = folder, size, faults
        self.names: List[str] = []

    def run(self) -> Dict[int, Process]:
        """Runs the workers until those without a fault have ended. Returns all, by rank."""
        with ReservedPorts(self._size) as ports, ProcessGroup(self._folder) as group:
            self.names = [f"worker {rank} ({address})" for rank, address in enumerate(ports.addresses)]
            workers = group.start_workers(ports.addresses, _WORKER, self._plan)
            for rank in set(range(self._size)) - set(self._faults):
                assert workers[rank].wait(_SECONDS) == 0, workers[rank].log()
            for rank, (kind, _) in self._faults.items():
                if kind == "stop":
                    workers[rank].signal(signal.SIGCONT)
                workers[rank].wait(_SECONDS)
            return dict(enumerate(workers))

    def results(self, workers: Dict[int, Process]) -> List[Dict[str, Any]]:
        """Returns the results of the survivors, after comparing them with one another."""
        survivors = [rank for rank in workers if rank not in self._faults]
        results = [json.loads(re.search("^result (.*)$", workers[rank].log(), re.M)[1]) for rank in survivors]
        assert [each["rank"] for each in results] == list(range(len(survivors)))
        for each in results:
            assert each["size"] == len(survivors)
            assert each["weights"] == results[0]["weights"]
            assert each["history"] == results[0]["history"]
        return results


def require_expected(result: Dict[str, Any], tolerance: float = 1e-5) -> None:
    """Requires the weights and the logs of one process."""
    for found, wanted in zip(result["weights"], expected()["weights"]):
        np.testing.assert_allclose(found, wanted, atol=tolerance)
    for name, values in expected()["history"].items():
        np.testing.assert_allclose(result["history"][name], values, atol=tolerance, err_msg=name)


def seconds_to_next_batch(worker: Process, lost: Process) -> float:
    """Returns how long after the fault of a worker another one has finished a batch."""
    fault = float(re.search(r"^fault (\S+)$", lost.log(), re.M)[1])
    return min(
        at - fault for at in map(float, re.findall(r"^batch \d+ (\S+)$", worker.log(), re.M)) if at > fault
    )


@pytest.mark.parametrize(
    ("size", "faults"),
    [
        pytest.param(3, {1: ["kill", 12]}, marks=[pytest.mark.keras, pytest.mark.quick]),
        pytest.param(3, {0: ["kill", 12]}),
        pytest.param(3, {2: ["kill", "validation"]}, marks=pytest.mark.any_line),
        pytest.param(4, {3: ["kill", 5], 0: ["kill", 14]}, marks=pytest.mark.any_line),
        pytest.param(4, {1: ["raise", 1]}, marks=pytest.mark.any_line),
    ],
)
def test_the_others_train_on_with_the_same_result(size: int, faults: Dict[int, Any], tmp_path: Path) -> None:
    job = Job(tmp_path, size, "arrays", faults)
    workers = job.run()
    for result in job.results(workers):
        require_expected(result)
    with (tmp_path / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["epoch"]) for row in rows] == list(range(EPOCHS))
    np.testing.assert_allclose([float(row["loss"]) for row in rows], expected()["history"]["loss"], atol=1e-5)
    last = max(faults, key=lambda rank: str(faults[rank][1]))
    for rank in set(workers) - set(faults):
        for lost in faults:
            assert f"lost: {job.names[lost]}. {job.names[rank]} trains on" in workers[rank].log()
    times = [seconds_to_next_batch(workers[rank], workers[last]) for rank in set(workers) - set(faults)]
    assert statistics.median(times) < 10, times  # 1 to 2 s where nothing else runs


@pytest.mark.any_line
def test_two_workers_are_lost_at_once_and_shuffled_rows_count_once(tmp_path: Path) -> None:
    job = Job(tmp_path, 5, "shuffled", {0: ["kill", 14], 3: ["kill", 14]})
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
def test_data_that_cannot_be_read_again_end_training_and_a_warning_says_so_first(tmp_path: Path) -> None:
    job = Job(tmp_path, 2, "generator", {1: ["kill", 12]})
    with ReservedPorts(2) as ports, ProcessGroup(tmp_path) as group:
        workers = group.start_workers(ports.addresses, _WORKER, job._plan)
        assert workers[0].wait(_SECONDS) == 3, workers[0].log()
        log = workers[0].log()
    assert (
        "fit will end when a worker is lost: a generator can be read only once; pass arrays or a tf.data.Dataset"
        in log
    )
    assert log.index("fit will end") < log.index("batch 1 ")
    assert f"{'worker 1'} ({ports.addresses[1]}) is lost" in log
