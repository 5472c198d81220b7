"""A worker that is slow is named within 20 steps; when one is lost, the others say where their collectives are recorded."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.trace.slow_worker import SLOW, STEPS
from tests.support.processes import ProcessGroup, ReservedPorts, wait_until

pytestmark = [pytest.mark.waits, pytest.mark.any_line]

STEP_SECONDS = 0.2


def test_a_slow_worker_is_named_and_the_last_collectives_are_recorded(tmp_path: Path) -> None:
    with ReservedPorts(3) as ports, ProcessGroup(tmp_path) as group:
        names = [f"worker {index} ({address})" for index, address in enumerate(ports.addresses)]
        workers = group.start_workers(ports.addresses, "tests.cluster.trace.slow_worker", str(STEP_SECONDS))
        workers[0].wait_for_text(rf"^step {STEPS - 1}$", timeout=120)
        log = workers[0].log()
        warning = re.search(r"(worker \d \(\S+\)) is slower than the other workers: .*", log)
        assert warning is not None, log
        assert warning[1] == names[SLOW]
        assert log.index(warning[0]) < log.index(f"step {STEPS - 1}\n")

        records = tmp_path / "records"
        assert not records.exists()
        workers[2].signal(signal.SIGSTOP)
        wait_until(lambda: len(list(records.glob("*/worker-?.json"))) == 2, 20, "records of those that wait")
        assert re.search(rf"^{re.escape(names[0])} waited \d+\.\d+ s in all_reduce", trace(records), re.M)
        workers[2].signal(signal.SIGKILL)
        for worker in workers[:2]:
            assert worker.wait(timeout=30) == 3, worker.log()
            found = re.search(r"see its last collectives by `tfs-trace (\S+)`", worker.log())
            assert found is not None, worker.log()
        folder = Path(found[1])
        assert folder.parent == records
        assert {path.name for path in folder.iterdir()} == {"worker-0.json", "worker-1.json"}

        shown = trace(folder)
        assert f"no record of {names[2]}" in shown
        assert f"the group failed: {names[2]} is lost" in shown
        assert re.search(rf"{re.escape(names[SLOW])} is the slowest", shown), shown
        events = json.loads((folder / "trace.json").read_text())["traceEvents"]
        waits = [event for event in events if event["name"] == f"waits for {names[SLOW]}"]
        assert len(waits) >= STEPS
        longest = sorted(event["dur"] / 1e6 for event in waits)[-STEPS:]
        assert 0.5 * STEP_SECONDS < longest[STEPS // 2] < 2 * STEP_SECONDS


def trace(folder: Path) -> str:
    command = [sys.executable, "-m", "tf_strategies.trace", str(folder)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
