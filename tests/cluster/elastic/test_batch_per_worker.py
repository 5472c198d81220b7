"""The global batch and the learning rate of `fit` follow the number of workers, and each row of an epoch counts once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

import numpy as np
import pytest

from tests.cluster.elastic.job import Job
from tests.cluster.elastic.task import BATCH, EPOCHS, ROWS, STEPS, make_model, make_rows
from tests.support.processes import ProcessGroup, ReservedPorts, tf_config

_WORKER = "tests.cluster.elastic.following_worker"
_RATE = 0.01
_SECONDS = 120


class Change(NamedTuple):
    """The place from which another number of workers trains."""

    epoch: int
    batches: int
    workers: int


def changes_of(log: str) -> List[Change]:
    places = re.findall(r"trains on with rank \d of (\d), from epoch (\d+), after batch (\d+)", log)
    assert places, log
    return [Change(int(epoch) - 1, int(batches), int(workers)) for workers, epoch, batches in places]


def expected(kind: str, first: int, changes: List[Change], normalized: bool = False) -> Dict[str, Any]:
    """The result of one process that takes the same batches with the same learning rates."""
    x, y = make_rows()
    model = make_model(normalized=normalized)
    rate, rows, at = _RATE, BATCH, 0
    history: Dict[str, List[float]] = {"loss": [], "label": [], "val_loss": [], "val_label": []}
    for epoch in range(EPOCHS):
        rate *= 0.5
        done, last = 0, STEPS * BATCH if kind == "repeated" else ROWS
        at = at if kind == "repeated" else 0
        sums = np.zeros(3)
        for batch in range(ROWS):
            rows = next(
                (BATCH // first * each.workers for each in changes if each[:2] == (epoch, batch)), rows
            )
            if done >= last:
                break
            chosen = np.arange(at, at + rows) if kind == "repeated" else np.arange(at, min(at + rows, ROWS))
            at, done = at + len(chosen), done + rows
            model.optimizer.learning_rate.assign(rate * rows / BATCH)
            model.reset_metrics()
            loss, label = model.train_on_batch(x[chosen % ROWS], y[chosen % ROWS])[:2]
            sums += len(chosen) * np.asarray([loss, label, 1])
        model.reset_metrics()
        values = model.evaluate(x, y, batch_size=BATCH, verbose=0)
        for name, value in zip(history, [*(sums[:2] / sums[2]), *values]):
            history[name].append(float(value))
    return {"history": history, "weights": [each.ravel() for each in model.get_weights()]}


def require_equal(found: Dict[str, Any], wanted: Dict[str, Any]) -> None:
    assert len(found["weights"]) == len(wanted["weights"])
    for mine, value in zip(found["weights"], wanted["weights"]):
        np.testing.assert_allclose(mine, value, atol=2e-5)
    for name, values in wanted["history"].items():
        np.testing.assert_allclose(found["history"][name], values, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    ("kind", "size", "faults", "meet"),
    [
        pytest.param("arrays", 3, {1: ["kill", 12]}, 0, marks=[pytest.mark.keras, pytest.mark.quick]),
        pytest.param("dataset", 3, {0: ["kill", 4], 2: ["kill", 15]}, 0, marks=pytest.mark.any_line),
        pytest.param("arrays", 3, {2: ["kill", 10]}, 14, marks=pytest.mark.any_line),
        pytest.param("unknown", 3, {1: ["kill", 5]}, 0, marks=pytest.mark.any_line),
        pytest.param("repeated", 3, {1: ["kill", 10]}, 14),
    ],
)
def test_batches_and_rates_follow_the_workers(
    kind: str, size: int, faults: Dict[int, Any], meet: int, tmp_path: Path
) -> None:
    job = Job(tmp_path, size, kind, faults, meet=meet, worker=_WORKER)
    workers = job.run()
    results = job.results(workers)
    stays = min(set(workers) - set(faults))
    changes = changes_of(workers[stays].log())
    assert len(changes) == len(faults) + bool(meet)
    require_equal(results[0], expected(kind, size, changes))
    if kind != "repeated":
        np.testing.assert_allclose(
            results[0]["history"]["label"], [make_rows()[1].mean()] * EPOCHS, atol=1e-6
        )
    for change in changes:
        if change.workers != size:
            rows = BATCH // size * change.workers
            assert f"a batch has {rows} rows now, in place of {BATCH}" in workers[stays].log()


@pytest.mark.any_line
def test_a_backup_has_the_place_whatever_the_batches(tmp_path: Path) -> None:
    """All workers are lost in an epoch that has had batches of two sizes. One worker begins again, with batches as given."""
    backup = str(tmp_path / "backup")
    folders = [tmp_path / "1", tmp_path / "2"]
    for folder in folders:
        folder.mkdir()
    faults = {1: ["kill", 12], **{rank: ["kill", 16] for rank in (0, 2)}}
    lost = Job(folders[0], 3, "dataset", faults, worker=_WORKER, backup=backup, save_freq=2).run()
    job = Job(folders[1], 1, "dataset", {}, worker=_WORKER, backup=backup, save_freq=2)
    workers = job.run()
    (result, *_) = job.results(workers)
    places = re.findall(r"^at epoch (\d+) batch (\d+)$", workers[0].log(), re.M)
    begin = Change(int(places[0][0]), int(places[0][1]), 3)
    changes = [*changes_of(lost[0].log()), begin]
    assert [each.epoch for each in changes] == [1, 1]
    assert changes[0].batches < changes[1].batches
    require_equal(result, expected("dataset", 3, changes))


@pytest.mark.any_line
def test_batches_grow_with_the_group(tmp_path: Path) -> None:
    plan = {"folder": str(tmp_path), "batch": "per_worker", "meetings": [[12, 99, 2]], "faults": {}}
    with ReservedPorts(2) as ports, ProcessGroup(tmp_path) as group:
        workers = [
            group.start_preloaded(
                f"worker{rank}",
                "tests.cluster.elastic.growing_worker",
                json.dumps(plan),
                env={"TF_CONFIG": tf_config({"worker": ports.addresses[: rank + 1]}, "worker", rank)},
            )
            for rank in range(2)
        ]
        for worker in workers:
            assert worker.wait(_SECONDS) == 0, worker.log()
    results = [json.loads(re.search("^result (.*)$", each.log(), re.M)[1]) for each in workers]
    assert results[0]["weights"] == results[1]["weights"]
    changes = changes_of(workers[0].log())
    assert [each.workers for each in changes] == [2]
    require_equal(results[0], expected("arrays", 1, changes, normalized=True))
    assert f"a batch has {2 * BATCH} rows now, in place of {BATCH}" in workers[0].log()
