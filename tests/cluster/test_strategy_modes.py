"""Layers and modes of training, in real processes, on the Keras that is in use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.processes import ProcessGroup, ReservedPorts, tf_config

pytestmark = pytest.mark.keras


@pytest.mark.parametrize(("workers", "replicas"), [(3, 1), (2, 2)])
def test_layers_and_modes_on_workers_with_so_many_replicas(
    workers: int, replicas: int, tmp_path: Path
) -> None:
    checks = re.findall(
        r"^def (check_\w+)", Path(__file__).with_name("strategy_modes_worker.py").read_text(), re.M
    )
    assert checks
    with ReservedPorts(workers) as ports, ProcessGroup(tmp_path) as group:
        for index in range(workers):
            group.start_python(
                f"worker{index}",
                "-m",
                "tests.cluster.strategy_modes_worker",
                str(replicas),
                env={"TF_CONFIG": tf_config({"worker": ports.addresses}, "worker", index)},
            )
        assert set(group.wait_all(timeout=400).values()) == {0}
        for index in range(workers):
            assert re.findall(r"^passed (\w+)", group[f"worker{index}"].log(), re.M) == checks
