"""Training and closing for a while leaves a process as it was; `make soak` does the same for long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak import flatness, soak

pytestmark = pytest.mark.any_line

WORKERS = 3
PLAN = {
    "rounds": {"warm": 1, "flat": 2, "leaking": 1},
    "epochs": 2,
    "steps": 120,
    "every": 12,
    "leak": "leaking",
}
# 0.6 KB a step: less than what leaks on purpose. TensorFlow's own iterators leave some 12 KB each epoch.
LEAK = 600.0


def limits(samples: list) -> dict:
    return {
        "heap": LEAK * (samples[-1].step - samples[0].step),
        "descriptors": 1,  # an epoch may hold one more than the next
        "threads": 1,
        "shared": 0,
    }


def test_training_leaves_memory_flat_and_weights_identical_and_a_leak_is_seen(tmp_path: Path) -> None:
    report = soak.run("tests.soak.fit_worker", PLAN, WORKERS, tmp_path, timeout=280)
    for phase, samples in report.samples.items():
        print(phase, flatness.table(samples), sep="\n")
    assert len(report.samples["flat"]) == len(report.samples["leaking"]) == WORKERS
    for samples in report.samples["flat"].values():
        assert len(samples) == 40
        assert flatness.too_much(samples, limits(samples)) == []
    for samples in report.samples["leaking"].values():
        assert any(what.startswith("heap grew") for what in flatness.too_much(samples, limits(samples)))
    compared = set(map(tuple, report.weights.values()))
    assert len(compared) == 1
    assert len(set(compared.pop())) == 4
    assert report.left_behind == []


def test_twenty_strategies_made_and_closed_leave_nothing(tmp_path: Path) -> None:
    plan = {"warm": 6, "strategies": 20}
    report = soak.run("tests.soak.closing_worker", plan, 2, tmp_path, timeout=120)
    print(flatness.table(report.samples["flat"]))
    for samples in report.samples["flat"].values():
        assert len(samples) == 20
        # TensorFlow keeps 50 KB of each strategy and its function, and 40 KB of each eager operation with new attributes.
        allowed = {"heap": 20 * 200e3, "resident": 12e6, "descriptors": 0, "threads": 0, "shared": 0}
        assert flatness.too_much(samples, allowed) == []
    assert report.left_behind == []
