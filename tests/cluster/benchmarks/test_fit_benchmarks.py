"""benchmarks.fit and benchmarks.timeline, on few steps."""

from __future__ import annotations

import csv
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from tests.support.processes import REPOSITORY, light_environment

pytestmark = pytest.mark.any_line
KERAS_3 = hasattr(tf.keras, "ops")


def run(module: str, *arguments: str, folder: Path, timeout: float) -> str:
    done = subprocess.run(
        [sys.executable, "-m", module, "--folder", str(folder), *arguments],
        cwd=REPOSITORY,
        env=light_environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def read(path: Path) -> list[dict]:
    with path.open() as file:
        return list(csv.DictReader(file))


def is_picture(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG")


def test_systems_train_in_turn(tmp_path):
    text = run(
        "benchmarks.fit", "--models", "mlp", "--workers", "2", "--systems", "ours,mwms,side_by_side",
        "--rounds", "2", "--steps", "2", "--batch", "4", folder=tmp_path, timeout=200,
    )  # fmt: skip
    rows = {row["system"]: row for row in read(tmp_path / "fit.csv")}
    assert list(rows) == ["ours", "mwms", "side_by_side"]
    if KERAS_3:
        assert "Keras 3" in rows.pop("mwms")["left_out"]
        assert "left out: `fit` of Keras 3 raises" in text
    for row in rows.values():
        assert (row["model"], row["batch"], row["workers"], row["left_out"]) == ("mlp", "4", "2", "")
        assert 0 < float(row["step_min"]) <= float(row["step_ms"]) <= float(row["step_max"])
        ratio = float(row["step_ms"]) / float(rows["ours"]["step_ms"])
        assert float(row["over_ours"]) == pytest.approx(ratio)
        share = float(rows["side_by_side"]["step_ms"]) / float(row["step_ms"])
        assert float(row["share_of_ideal"]) == pytest.approx(share)
        assert int(row["peak_bytes"]) > 60_000_000  # of weights
        assert int(row["extra_bytes"]) == int(row["peak_bytes"]) - int(rows["side_by_side"]["peak_bytes"])
    # The largest of the MLP's variables is larger than a pack.
    assert rows["ours"]["largest_pack"] == str(4 * 3072 * 3072)
    assert "MB beyond side by side, wanted ≤ the largest pack, 37.7 MB: " in text
    assert (tmp_path / "fit.md").read_text().strip() in text
    assert is_picture(tmp_path / "fit.png")


def test_a_timeline_shows_where_the_collectives_of_a_step_are(tmp_path):
    text = run("benchmarks.timeline", "--steps", "4", "--batch", "4", folder=tmp_path, timeout=120)
    rows = [{key: float(value) for key, value in row.items()} for row in read(tmp_path / "timeline.csv")]
    assert 1 <= len(rows) <= 4
    for row in rows:
        assert 0 < row["communication_ms"] < row["step_ms"]
        assert 0 <= row["hidden_ms"] <= row["communication_ms"]
        assert row["hidden_share"] == pytest.approx(row["hidden_ms"] / row["communication_ms"])
        assert 0 <= row["hidden_by_backprop_share"] <= row["hidden_share"]
    share = statistics.median(row["hidden_share"] for row in rows)
    assert f"| share hidden behind computation | {share:.0%} (" in text
    spans = read(tmp_path / "step.csv")
    assert {span["kind"] for span in spans} == {"forward", "backprop", "update", "collective"}
    flights = [span for span in spans if span["kind"] == "collective"]
    # 60 MB in packs of 8 MB, and the metrics.
    assert len(flights) >= 4
    # A product for each of four kernels, and one for each input but the first.
    products = [span for span in spans if span["kind"] == "backprop" and "/MatMul" in span["name"]]
    assert len(products) >= 7
    assert is_picture(tmp_path / "timeline.png")
