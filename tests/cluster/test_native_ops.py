"""Every collective operation in real processes, against NumPy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import ProcessGroup, ReservedPorts, tf_config

_CHECKS = 12


@pytest.mark.parametrize(("size", "transport", "wire"), [(3, "auto", "sysv"), (2, "tcp", "tcp")])
def test_collectives_equal_numpy_on_every_worker(
    size: int, transport: str, wire: str, tmp_path: Path
) -> None:
    with ReservedPorts(size) as ports, ProcessGroup(tmp_path) as group:
        for index in range(size):
            config = tf_config({"worker": ports.addresses}, "worker", index)
            group.start_python(
                f"worker{index}",
                "-m",
                "tests.cluster.native_ops_worker",
                transport,
                env={"TF_CONFIG": config},
            )
        statuses = group.wait_all(timeout=180)
        assert set(statuses.values()) == {0}, statuses
        for name in statuses:
            assert f"finished {_CHECKS}" in group[name].log()
            assert wire in group[name].log().partition("transport: ")[2]
