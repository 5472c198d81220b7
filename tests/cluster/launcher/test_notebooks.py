"""Tests tfs.launch in cells of a notebook: variables, the sources of cells, errors, and an interrupt."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cluster.launcher.launcher import gone
from tests.support.notebooks import run_cells

pytestmark = pytest.mark.waits

PREPARE = """
import os, pathlib, signal, threading, time
import tf_strategies as tfs
folder = pathlib.Path(os.environ["DIR"])
names = {"scale": 3}

def helper(value):
    return names["scale"] * value
"""

# AutoGraph compiles the condition only if it finds the source of the cell.
COMPILE = """
def absolute(value):
    import tensorflow as tf

    @tf.function
    def compiled(x):
        if x < 0:
            x = -x
        return x

    return helper(compiled(tf.constant(value)).numpy())

print("results", tfs.launch(absolute, args=[-2.0], workers=1))
names["scale"] = 5
"""

FAIL = """
def fail():
    raise ValueError(f"scale {helper(1)}")

try:
    tfs.launch(fail, workers=1)
except tfs.LaunchError as error:
    print(error.task, error.traceback)
"""

# A thread sends what Jupyter's button sends.
INTERRUPT = """
def hold():
    (folder / str(os.getpid())).touch()
    time.sleep(60)

def interrupt():
    while len(list(folder.iterdir())) < 2:
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    tfs.launch(hold, workers=2, timeout=20)
except KeyboardInterrupt:
    print("interrupted", tfs.launch(lambda: helper(1), workers=1))
"""


def test_functions_of_cells_run_fail_and_are_interrupted(tmp_path: Path) -> None:
    _, compiled, failed, interrupted = run_cells(
        [PREPARE, COMPILE, FAIL, INTERRUPT], timeout=60, env={"DIR": str(tmp_path)}
    )
    assert re.search(r"^results \[.*6\.0\)?\]$", compiled, re.M), compiled
    assert 'raise ValueError(f"scale {helper(1)}")' in failed
    assert re.search(r"^worker 0 Traceback .*\n(.*\n)*ValueError: scale 5$", failed, re.M), failed
    assert re.search(r"^worker 0 \| KeyboardInterrupt$", interrupted, re.M), interrupted
    assert re.search(r"^interrupted \[5\]$", interrupted, re.M), interrupted
    assert len(list(tmp_path.iterdir())) == 2
    assert all(gone(int(path.name)) for path in tmp_path.iterdir())
