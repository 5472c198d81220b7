"""The wheel of `make wheels` installs without a compiler, and works with each TensorFlow that it was built for."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Dict, List

import pytest

from tests.repo.layers import ROOT

pytestmark = [pytest.mark.any_line, pytest.mark.timeout(400)]

OTHER = ROOT / ".venv" / "tf2.15" / "bin" / "python"
PYTHONS = [sys.executable, *([str(OTHER)] if OTHER.exists() else [])]
SCRIPT = """
import numpy as np, tensorflow as tf, tf_strategies as tfs
from tf_strategies.native import loader
strategy = tfs.CollectiveAllReduceStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
model.fit(np.ones([16, 4], np.float32), np.ones([16, 1], np.float32), batch_size=8, verbose=0)
print("trained", strategy.rank, loader.build_info()["tensorflow"] == tf.__version__, tfs.__file__, flush=True)
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder with a wheel for the TensorFlows of PYTHONS, and an sdist."""
    folder = tmp_path_factory.mktemp("dist")
    asked = [word for python in PYTHONS for word in ("--python", python)]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    _run(
        [sys.executable, "tools/make_wheels.py", "--folder", str(folder), *asked],
        {"PATH": path},
        seconds=300,
    )
    return folder


def test_the_wheel_installs_without_a_compiler_and_trains(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    assert wheel.name.startswith("tf_strategies-0.1.0-py3-none-manylinux_2_")
    site, script = tmp_path / "site", tmp_path / "script.py"
    script.write_text(SCRIPT)
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--find-links", str(dist)]
    start = time.monotonic()
    _run([*pip, "--target", str(site), "tf_strategies"], {"PATH": "/nonexistent"}, seconds=100)
    assert time.monotonic() - start < 30
    for python in PYTHONS:
        command = [python, str(site / "bin" / "tfs-run"), "--workers", "2", str(script)]
        log = _run(command, {"PYTHONPATH": str(site), "TF_CPP_MIN_LOG_LEVEL": "3"}, seconds=150)
        for rank in range(2):
            assert f"trained {rank} True {site}/tf_strategies/__init__.py" in log


def test_the_sdist_has_what_a_build_reads(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as opened:
        packed = {name.partition("/")[2] for name in opened.getnames()}
    listed = subprocess.run(
        ["git", "ls-files", "setup.py", "pyproject.toml", "tools/*.py", "ops", "tf_strategies"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert len(listed) > 300
    assert [name for name in listed if name not in packed and not name.endswith("BUILD")] == []


def _run(command: List[str], environ: Dict[str, str], *, seconds: float) -> str:
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
