"""Reads from Prometheus and TensorBoard the time and the communication of the steps of two workers."""

from __future__ import annotations

import contextlib
import json
import re
import statistics
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Dict, List

import pytest
import tensorflow as tf
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.callbacks.step_worker import FEATURES, SLEEP_SECONDS, SLOW
from tests.support.processes import ProcessGroup, ReservedPorts, consecutive_ports, wait_until
from tf_strategies.slow_worker import BATCHES, ROWS

GRADIENT_BYTES = 4 * FEATURES * (FEATURES + 1)
TAGS = {
    "step/seconds",
    "step/communication_seconds",
    "step/exposed_seconds",
    "step/hidden_share",
    "step/sent_bytes",
    "step/received_bytes",
    "step/per_second",
}


@pytest.mark.any_line
@pytest.mark.quick
def test_each_worker_serves_and_writes_the_figures_of_its_steps(tmp_path: Path) -> None:
    with ReservedPorts(2) as ports, consecutive_ports(2) as first, ProcessGroup(tmp_path) as group:
        group.start_workers(ports.addresses, "tests.cluster.callbacks.step_worker", str(tmp_path), str(first))
        scraped: List[Dict[str, float]] = [{}, {}]

        def both_train() -> bool:
            assert all(each.returncode is None for each in (group["worker0"], group["worker1"]))
            for rank in range(2):
                with contextlib.suppress(urllib.error.URLError):
                    scraped[rank] = scrape(first + rank, {"role": "worker", "task": str(rank)})
            return all(each.get("tf_strategies_steps_total", 0) >= 10 for each in scraped)

        wait_until(both_train, 60, "the steps of both workers")
        (tmp_path / "read").touch()
        group.require_success(60)
        command = [sys.executable, "-m", "tf_strategies.trace", str(tmp_path / "records")]
        shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
        slow = rf"worker {SLOW} \(\S+\) is the slowest: .*, mostly before it had its next batch"
        assert re.search(slow, shown), shown
        record = next((tmp_path / "records").rglob("worker-0.json"))
        names = {each["name"] for each in json.loads(record.read_text())["collectives"]}
        assert {BATCHES, ROWS} <= names
        waited = [
            each["tf_strategies_exposed_seconds_total"] / each["tf_strategies_steps_total"]
            for each in scraped
        ]
        assert waited[SLOW] + 0.5 * SLEEP_SECONDS < waited[1 - SLOW]
        for rank, each in enumerate(scraped):
            steps = each["tf_strategies_steps_total"]
            last = each["tf_strategies_step_seconds"]
            assert each["tf_strategies_steps_per_second"] == pytest.approx(1 / last)
            assert each["tf_strategies_training_seconds_total"] / steps > 0.7 * SLEEP_SECONDS
            assert 0 <= each["tf_strategies_hidden_ratio"] <= 1
            for direction in ("sent", "received"):
                assert each[f"tf_strategies_{direction}_bytes_total"] / steps == pytest.approx(
                    GRADIENT_BYTES, rel=0.05
                )
            with pytest.raises(urllib.error.URLError):
                scrape(first + rank, {})
            scalars = read_scalars(tmp_path / "logs" / f"worker-{rank}")
            assert set(scalars) == TAGS
            assert len(scalars["step/seconds"]) >= 2
            assert statistics.mean(scalars["step/seconds"]) > 0.7 * SLEEP_SECONDS
            assert scalars["step/sent_bytes"][0] == pytest.approx(GRADIENT_BYTES, rel=0.05)


def scrape(port: int, labels: Dict[str, str]) -> Dict[str, float]:
    """Returns the metrics that a worker serves, by name. All have these labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        families = text_string_to_metric_families(response.read().decode())
        samples = [sample for family in families for sample in family.samples]
    assert all(sample.labels == labels for sample in samples)
    return {sample.name: sample.value for sample in samples}


def read_scalars(folder: Path) -> Dict[str, List[float]]:
    """Returns the scalars of an event file, by tag."""
    (path,) = folder.glob("events*")
    found: Dict[str, List[float]] = {}
    steps: List[int] = []
    for record in tf.data.TFRecordDataset(str(path)):
        event = tf.compat.v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            found.setdefault(value.tag, []).append(float(tf.make_ndarray(value.tensor)))
            steps.append(event.step)
    assert steps == sorted(steps) and steps[0] > 1
    return found
