"""A slow worker and a slow wire are named; when a worker is lost, the others say where their collectives are recorded."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.trace.slow_worker import SLOW, STEPS
from tests.support import namespaces
from tests.support.processes import ProcessGroup, ReservedPorts, tf_config, wait_until
from tests.support.switch import Switch

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


def test_a_slow_wire_is_named_and_subgroups_are_recorded(tmp_path: Path) -> None:
    """Worker 3 sends at a quarter of the rate of the others, within their network."""
    reason = namespaces.missing()
    if reason:
        pytest.skip(reason)
    with Switch(4) as hosts, ProcessGroup(tmp_path) as group:
        for index in range(4):
            hosts.limit(index, "100mbit" if index == 3 else "400mbit")
        addresses = [f"{address}:22022" for address in hosts.addresses]
        for index in range(4):
            group.start_preloaded(
                f"worker{index}",
                "tests.cluster.trace.slow_wire_worker",
                env={"TF_CONFIG": tf_config({"worker": addresses}, "worker", index)},
                namespace=hosts.name(index),
            )
        group.require_success(timeout=120)
        name = re.escape(f"worker 3 ({addresses[3]})")
        # What it receives is acknowledged over the slow wire, and can be slow, too.
        found_slow = rf"the network of {name} is slow: it sends (?:and receives )?(\S+) MB/s"
        named = rf"{found_slow}, and the other connections have (\S+) MB/s"
        found = re.search(named, group["worker0"].log())
        assert found is not None, group["worker0"].log()
        assert float(found[1]) < 12.5 and float(found[1]) < 0.6 * float(found[2])
        assert "is slower than the other workers" not in group["worker0"].log()

        (folder,) = (tmp_path / "records").iterdir()
        shown = trace(folder)
        assert re.search(named, shown), shown
        events = json.loads((folder / "trace.json").read_text())["traceEvents"]
        workers = ", ".join(f"worker {index} ({addresses[index]})" for index in (0, 2))
        in_part = [event["pid"] for event in events if event.get("args", {}).get("workers") == workers]
        assert set(in_part) == {0, 2}


def trace(folder: Path) -> str:
    command = [sys.executable, "-m", "tf_strategies.trace", str(folder)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
