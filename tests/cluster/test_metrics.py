"""Callbacks see the metrics of all workers and decide alike; the chief alone shows and writes. Real processes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.processes import ProcessGroup, ReservedPorts, tf_config

pytestmark = pytest.mark.keras


WORKERS, REPLICAS = 3, 1


def test_metrics_and_callbacks(tmp_path: Path) -> None:
    checks = re.findall(r"^def (check_\w+)", Path(__file__).with_name("metrics_worker.py").read_text(), re.M)
    assert checks
    with ReservedPorts(WORKERS) as ports, ProcessGroup(tmp_path) as group:
        for index in range(WORKERS):
            config = tf_config({"worker": ports.addresses}, "worker", index)
            group.start_python(
                f"worker{index}",
                "-m",
                "tests.cluster.metrics_worker",
                str(tmp_path),
                str(REPLICAS),
                env={"TF_CONFIG": config},
            )
        assert set(group.wait_all(timeout=280).values()) == {0}
        logs = [group[f"worker{index}"].log() for index in range(WORKERS)]
    for log in logs:
        assert re.findall(r"^passed (\w+)", log, re.M) == checks
    shown = [between(log, "bar") for log in logs]
    assert shown[0].count("Epoch 1/2") == shown[0].count("Epoch 2/2") == 1
    assert "accuracy:" in shown[0]
    for text in [*shown[1:], *(between(log, "quiet") for log in logs)]:
        assert not re.search(r"Epoch \d|loss:|ms/step", text), text


def between(log: str, name: str) -> str:
    return re.search(rf"^{name} begins$(.*?)^{name} ends$", log, re.M | re.S).group(1)
