"""The examples of the README and of docs/ run as they stand."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.estimators import needs_estimator
from tests.support.processes import REPOSITORY, ProcessGroup

DOCUMENTS = REPOSITORY / "docs"
ESTIMATOR = "estimator.md"
_DATASET = """
import numpy as np
import tensorflow as tf
dataset = tf.data.Dataset.from_tensor_slices((np.ones([96, 8], "float32"), np.ones([96], "int64"))).batch(32)
"""


_MODEL = """
import importlib
import tensorflow as tf
import tf_strategies as tfs
tf.compat.v1.logging.set_verbosity("ERROR")
example = importlib.import_module("examples.12_estimator")
model_fn, train_input_fn, test_input_fn = example.model_fn, example.train_input_fn, example.test_input_fn
"""


# Each block of docs/ is a program of its own, with these names.
_IN_A_PAGE = """
import tempfile
import keras
import tf_strategies as tfs
folder = tempfile.mkdtemp()
"""
_CLOSE = "\nstrategy.close()\n"


def python_blocks(document: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)


def train_on_two_workers(folder: Path, text: str, timeout: float = 120) -> str:
    script = folder / "readme.py"
    script.write_text(text)
    with ProcessGroup(folder) as group:
        command = [sys.executable, "-m", "tf_strategies.launch.run", "--workers", "2", str(script)]
        run = group.start("tfs-run", command)
        assert run.wait(timeout) == 0
        return run.log()


@pytest.mark.any_line
@pytest.mark.quick
@pytest.mark.parametrize("block", python_blocks(REPOSITORY / "README.md"))
def test_python_blocks_train_on_two_workers(block: str, tmp_path: Path) -> None:
    log = train_on_two_workers(
        tmp_path, _DATASET + block + 'print("trained", strategy.num_replicas_in_sync)\n'
    )
    assert log.count("trained 2") == 2


@pytest.mark.any_line
def test_python_blocks_of_the_pages_run_on_two_workers(tmp_path: Path) -> None:
    pages = sorted(page for page in DOCUMENTS.glob("*.md") if page.name != ESTIMATOR)
    programs = [(page.name, block) for page in pages for block in python_blocks(page)]
    assert len(programs) >= 5
    text = "".join(
        f"exec({_DATASET + _IN_A_PAGE + block + _CLOSE!r}, {{}})\nprint('ran', {name!r}, flush=True)\n"
        for name, block in programs
    )
    log = train_on_two_workers(tmp_path, text)
    for name, _ in programs:
        assert log.count(f"ran {name}") == 2 * [each for each, _ in programs].count(name)


@needs_estimator
def test_the_block_of_estimator_trains_and_evaluates(tmp_path: Path) -> None:
    (block,) = python_blocks(DOCUMENTS / ESTIMATOR)
    script, folder = tmp_path / "readme.py", tmp_path / "model"
    script.write_text(f"{_MODEL}folder = {str(folder)!r}\n{block}print('ended')\n")
    with ProcessGroup(tmp_path) as group:
        options = ["--chief", "--workers", "2", "--ps", "1", "--evaluator"]
        command = [sys.executable, "-m", "tf_strategies.launch.run", *options, str(script)]
        run = group.start("tfs-run", command)
        assert run.wait(timeout=240) == 0
        assert run.log().count("| ended") == 4
    assert (folder / "model.ckpt-100.index").is_file()
    assert list((folder / "eval").glob("events.out.tfevents.*"))
