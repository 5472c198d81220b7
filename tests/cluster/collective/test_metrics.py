"""Callbacks see the metrics of all workers and decide alike; the chief alone shows and writes. Real processes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.checks import require_checks

pytestmark = [pytest.mark.keras, pytest.mark.matrix, pytest.mark.quick]


WORKERS, REPLICAS = 3, 1


def test_metrics_and_callbacks(tmp_path: Path) -> None:
    logs = require_checks(
        tmp_path, "tests.cluster.collective.metrics_worker", str(tmp_path), str(REPLICAS), workers=WORKERS
    )
    shown = [between(log, "bar") for log in logs]
    assert shown[0].count("Epoch 1/2") == shown[0].count("Epoch 2/2") == 1
    assert "accuracy:" in shown[0]
    for text in [*shown[1:], *(between(log, "quiet") for log in logs)]:
        assert not re.search(r"Epoch \d|loss:|ms/step", text), text


def between(log: str, name: str) -> str:
    return re.search(rf"^{name} begins$(.*?)^{name} ends$", log, re.M | re.S).group(1)
