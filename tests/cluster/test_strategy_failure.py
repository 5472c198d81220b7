"""A worker killed in the middle of `fit` ends training on the others, soon and by name."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from tests.support.processes import ProcessGroup, ReservedPorts, tf_config


@pytest.mark.parametrize("victim", [0, 1])
def test_survivors_of_a_killed_worker_raise_within_five_seconds(victim: int, tmp_path: Path) -> None:
    with ReservedPorts(3) as ports, ProcessGroup(tmp_path) as group:
        for index in range(3):
            config = tf_config({"worker": ports.addresses}, "worker", index)
            group.start_python(
                f"worker{index}", "-m", "tests.cluster.strategy_endless_fit_worker", env={"TF_CONFIG": config}
            )
        group[f"worker{victim}"].wait_for_text(r"^step 20$", timeout=240)
        killed = time.monotonic()
        group[f"worker{victim}"].signal(signal.SIGKILL)
        for index in {0, 1, 2} - {victim}:
            name = re.escape(f"worker {victim} ({ports.addresses[victim]})")
            group[f"worker{index}"].wait_for_text(rf"^lost: [\s\S]*{name} is lost", timeout=5)
        assert time.monotonic() - killed < 5
        for index in {0, 1, 2} - {victim}:
            assert group[f"worker{index}"].wait(timeout=20) == 7
