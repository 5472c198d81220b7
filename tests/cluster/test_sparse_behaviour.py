"""What holds for IndexedSlices whichever way they are added up, in three real processes with two replicas each."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.processes import ProcessGroup, ReservedPorts, tf_config


def test_slices_on_three_workers_with_two_replicas_each(tmp_path: Path) -> None:
    checks = re.findall(
        r"^def (check_\w+)", Path(__file__).with_name("sparse_behaviour_worker.py").read_text(), re.M
    )
    assert checks
    with ReservedPorts(3) as ports, ProcessGroup(tmp_path) as group:
        for index in range(3):
            config = tf_config({"worker": ports.addresses}, "worker", index)
            group.start_python(
                f"worker{index}",
                "-m",
                "tests.cluster.sparse_behaviour_worker",
                "2",
                env={"TF_CONFIG": config},
            )
        assert set(group.wait_all(timeout=300).values()) == {0}
        for index in range(3):
            assert re.findall(r"^passed (\w+)", group[f"worker{index}"].log(), re.M) == checks
