"""The chief alone writes to Weights & Biases and MLflow, without a network: one run, with the metrics of the joint batch."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.processes import ProcessGroup, ReservedPorts

EPOCHS = 3


@pytest.mark.any_line
def test_trackers_have_one_run_with_the_metrics_of_all_workers(tmp_path: Path) -> None:
    offline = {
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(tmp_path),
        "MLFLOW_TRACKING_URI": (tmp_path / "mlruns").as_uri(),
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }
    with ReservedPorts(2) as ports, ProcessGroup(tmp_path) as group:
        workers = group.start_workers(
            ports.addresses, "tests.cluster.callbacks.tracker_worker", str(EPOCHS), env=lambda index: offline
        )
        group.require_success(120)
        chief, other = (json.loads(re.search("^found (.*)$", worker.log(), re.M)[1]) for worker in workers)
    history = chief["history"]
    assert history == other["history"]
    assert len(set(history["loss"])) == EPOCHS
    assert chief["mlflow"] == history
    assert {name: chief["wandb"][f"epoch/{name}"] for name in history} == {
        name: values[-1] for name, values in history.items()
    }
    assert len(list((tmp_path / "wandb").glob("offline-run-*/run-*.wandb"))) == 1
    assert len(list((tmp_path / "mlruns").glob("*/*/metrics"))) == 1
