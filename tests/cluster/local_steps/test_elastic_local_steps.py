"""Local steps go on when workers are lost, leave and come back: from the last average, as NumPy computes it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest

from tests.cluster.local_steps.oracle import NEW, weights_after
from tests.cluster.local_steps.task import ELASTIC, EPOCHS, make_rows
from tests.support.processes import Process, ProcessGroup, ReservedPorts, tf_config

_SECONDS = 120
_WORKER = "tests.cluster.local_steps.elastic_worker"


def plan_of(
    program: str, faults: Dict[str, List[Any]], folder: Path, meet: int = 0, saves: bool = False
) -> str:
    return json.dumps(
        {"program": program, "faults": faults, "meet": meet, "saves": saves, "folder": str(folder)}
    )


def steps_of(worker: Process) -> List[int]:
    return [int(each) for each in re.findall(r"^step (\d+)$", worker.log(), re.M)]


def begins_of_attempts(steps: List[int]) -> List[int]:
    return [steps[0], *(step for before, step in zip(steps, steps[1:]) if step != before + 1)]


def result_of(worker: Process) -> Dict[str, Any]:
    return json.loads(re.search("^result (.*)$", worker.log(), re.M)[1])


@pytest.mark.parametrize(
    ("program", "lost_at", "average", "meet"),
    [
        pytest.param("fit", 6, 3, 14, marks=pytest.mark.keras),
        pytest.param("after a warm-up", 4, 3, 10, marks=pytest.mark.any_line),
        pytest.param("loop", 9, 6, 13, marks=pytest.mark.any_line),
    ],
)
def test_a_killed_worker_comes_back_after_an_average(
    program: str, lost_at: int, average: int, meet: int, tmp_path: Path
) -> None:
    """The others go back to the average before step `lost_at`. It joins after a later one, at the latest before step `meet`."""
    saves = program == "after a warm-up"
    plan = plan_of(program, {"2": ["kill", lost_at]}, tmp_path, meet=meet, saves=saves)
    with ReservedPorts(3) as ports, ProcessGroup(tmp_path) as group:
        first, second, killed = group.start_workers(ports.addresses, _WORKER, plan)
        killed.wait(_SECONDS)
        env = {
            "TF_CONFIG": tf_config({"worker": ports.addresses}, "worker", 2),
            "TF_STRATEGIES_RESTARTED": "1",
        }
        again = group.start_preloaded("again", _WORKER, plan, "again", env=env)
        for worker in (first, second, again):
            assert worker.wait(_SECONDS) == 0, worker.log()
    joined = steps_of(again)[0] - 1
    for worker in (first, second):
        seen = steps_of(worker)
        assert seen[-len(steps_of(again)) :] == steps_of(again) == list(range(joined + 1, 10 * EPOCHS + 1))
        # The last one repeats no step if the group changed before the next one began.
        assert begins_of_attempts(seen) in ([1, average + 1, joined + 1], [1, average + 1])
    results = [result_of(worker) for worker in (first, second, again)]
    assert results[1]["weights"] == results[2]["weights"] == results[0]["weights"]
    changes = {average: [0, 1], joined: [0, 1, NEW]}
    expected = weights_after(ELASTIC[program], 3, changes=changes, saves=saves)
    for found, wanted in zip(results[0]["weights"], expected):
        np.testing.assert_allclose(found, wanted.ravel(), atol=1e-5)
    if results[0]["history"]:
        mean = make_rows(ELASTIC[program].repeats)[1].mean()
        np.testing.assert_allclose(results[0]["history"]["label"], [mean] * EPOCHS, atol=1e-6)


@pytest.mark.any_line
def test_a_worker_that_sigterm_asks_to_end_leaves_between_averages(tmp_path: Path) -> None:
    """All average for it, so that no step is repeated."""
    plan = plan_of("fit", {"1": ["terminate", 5]}, tmp_path)
    with ReservedPorts(3) as ports, ProcessGroup(tmp_path) as group:
        workers = group.start_workers(ports.addresses, _WORKER, plan)
        assert [worker.wait(_SECONDS) for worker in workers] == [0, 143, 0], workers[0].log()
    (place,) = set(
        re.findall(r"trains on with rank . of 2, from epoch 1, after batch (\d+)", workers[0].log())
    )
    for worker in (workers[0], workers[2]):
        assert steps_of(worker) == list(range(1, 10 * EPOCHS + 1))
    changes = {int(place): [0, 2]}
    wanted = weights_after(ELASTIC["fit"], 3, changes=changes)
    for found, each in zip(result_of(workers[0])["weights"], wanted):
        np.testing.assert_allclose(found, each.ravel(), atol=1e-5)
