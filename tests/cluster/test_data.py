"""How data are split between workers, counted and put together again: in real processes, against NumPy and one process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.processes import ProcessGroup, ReservedPorts, tf_config

pytestmark = pytest.mark.keras


def start_workers(group: ProcessGroup, ports: ReservedPorts, module: str, *arguments: str) -> list[str]:
    names = [f"worker{index}" for index in range(len(ports.addresses))]
    for index, name in enumerate(names):
        config = tf_config({"worker": ports.addresses}, "worker", index)
        group.start_python(name, "-m", module, *arguments, env={"TF_CONFIG": config})
    return names


# With three workers one may have no data at all; the rest needs two, with several replicas each.
WITH_THREE = ("batches_smaller", "uneven", "sharding_off", "files", "predict_gives")


@pytest.mark.parametrize(("size", "local_replicas"), [(2, 2), (3, 1)])
def test_data_of_every_kind(size: int, local_replicas: int, tmp_path: Path) -> None:
    source = Path(__file__).with_name("data_worker.py").read_text()
    checks = re.findall(r"^def (check_\w+)", source, re.M)
    if size == 3:
        checks = [check for check in checks if any(part in check for part in WITH_THREE)]
    assert len(checks) >= len(WITH_THREE)
    with ReservedPorts(size) as ports, ProcessGroup(tmp_path) as group:
        arguments = ["tests.cluster.data_worker", str(local_replicas), str(tmp_path), *checks]
        names = start_workers(group, ports, *arguments)
        assert set(group.wait_all(timeout=280).values()) == {0}
        for name in names:
            assert re.findall(r"^passed (\w+)", group[name].log(), re.M) == checks


def test_a_generator_that_raises_on_one_worker_ends_all(tmp_path: Path) -> None:
    with ReservedPorts(3) as ports, ProcessGroup(tmp_path) as group:
        names = start_workers(group, ports, "tests.cluster.failing_data_worker")
        assert all(status == 1 for status in group.wait_all(timeout=120).values())
        assert "the third batch cannot be read" in group["worker1"].log()
        for name in (names[0], names[2]):
            assert re.search(r"worker 1 \([0-9.:]+\)", group[name].log())
            assert "all steps done" not in group[name].log()
