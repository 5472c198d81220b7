"""What fails on one worker inside or before a collective, and what its peers see of it: three real processes."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.leftovers import nothing_left
from tests.support.processes import ProcessGroup, ReservedPorts, tf_config

_WORKER = Path(__file__).with_name("failing_group_worker.py")


def test_a_collective_that_fails_on_one_of_three_workers(tmp_path: Path) -> None:
    checks = re.findall(r"^@check\ndef (\w+)", _WORKER.read_text(), re.M)
    assert checks
    with ReservedPorts(3) as ports, ProcessGroup(tmp_path) as group, nothing_left(group, ports.ports):
        for index in range(3):
            config = tf_config({"worker": ports.addresses}, "worker", index)
            group.start_python(
                f"worker{index}", "-m", "tests.cluster.failing_group_worker", env={"TF_CONFIG": config}
            )
        assert set(group.wait_all(timeout=200).values()) == {0}
        for index in range(3):
            assert re.findall(r"^passed (\w+)", group[f"worker{index}"].log(), re.M) == checks
