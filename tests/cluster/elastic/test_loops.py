"""A loop of the user's own goes on when workers are lost, leave or join, with the result of one process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import pytest
import tensorflow as tf

from tests.cluster.elastic.job import Job
from tests.cluster.elastic.task import BATCH, BATCHES, EPOCHS, make_model, make_rows, squared_error

WORKER = "tests.cluster.elastic.loop_worker"


def expected() -> Dict[str, List[Any]]:
    """The result of one process."""
    model = make_model()
    rows = tf.data.Dataset.from_tensor_slices(make_rows()).batch(BATCH)
    losses = []
    for _ in range(EPOCHS):
        total = 0.0
        for x, y in rows:
            with tf.GradientTape() as tape:
                loss = squared_error(model(x), y)
            gradients = tape.gradient(loss, model.trainable_variables)
            model.optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            total += float(loss)
        losses.append(total)
    return {"loss": losses, "weights": [each.ravel() for each in model.get_weights()]}


def require_expected(results: List[Dict[str, Any]]) -> None:
    wanted = expected()
    for result in results:
        for found, each in zip(result["weights"], wanted["weights"]):
            np.testing.assert_allclose(found, each, atol=1e-5)
        np.testing.assert_allclose(result["history"]["loss"], wanted["loss"], rtol=1e-5)


@pytest.mark.parametrize(
    ("size", "faults", "meet"),
    [
        pytest.param(3, {0: ["kill", 12]}, 0, marks=pytest.mark.keras),
        pytest.param(3, {1: ["kill", 4]}, 14, marks=pytest.mark.any_line),
        pytest.param(2, {0: ["terminate", 4]}, 14, marks=pytest.mark.any_line),
    ],
)
def test_the_loop_goes_on_with_the_same_result(
    size: int, faults: Dict[int, Any], meet: int, tmp_path: Path
) -> None:
    job = Job(tmp_path, size, "arrays", faults, meet=meet, worker=WORKER)
    workers = job.run()
    require_expected(job.results(workers))
    ((rank, (kind, _)),) = faults.items()
    survivor = workers[min(set(workers) - set(faults))]
    what = "left" if kind == "terminate" else "lost"
    assert re.search(
        rf"{what}: {re.escape(job.names[rank])}\. worker \d \(\S+\) trains on with rank", survivor.log()
    )
    if meet:
        assert f"joined: {job.names[rank]}. " in survivor.log()
    if kind == "terminate":
        assert len(re.findall(r"^batch \d+ ", survivor.log(), re.M)) == BATCHES * EPOCHS  # none is repeated
        assert job.lost[rank].wait(0) == 143


@pytest.mark.any_line
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("function", "If it uses a tf.function that was made before"),
        ("dataset", "a distributed dataset was made before the group changed"),
    ],
)
def test_what_belongs_to_the_last_group_is_named(what: str, reason: str, tmp_path: Path) -> None:
    job = Job(tmp_path, 2, "arrays", {1: ["kill", 4]}, wrong=what, worker=WORKER)
    with pytest.raises(AssertionError):
        job.run()
    assert reason in (tmp_path / "worker0.log").read_text()


@pytest.mark.any_line
@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("model", "has other variables than .*make all variables before ElasticState"),
        ("batches", "the dataset to distribute differs between workers"),
    ],
)
def test_a_worker_with_something_else_does_not_end_the_others(
    wrong: str, reason: str, tmp_path: Path
) -> None:
    job = Job(tmp_path, 3, "arrays", {1: ["kill", 4]}, meet=14, wrong=wrong, worker=WORKER)
    workers = job.run()
    require_expected(job.results(workers))
    assert re.search(rf"^ended at .*{reason}", workers[1].log(), re.M), workers[1].log()
