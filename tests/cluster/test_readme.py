"""The README's examples run as they stand."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.estimators import needs_estimator
from tests.support.processes import REPOSITORY, ProcessGroup

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


def python_blocks(*, of_estimator: bool) -> list[str]:
    blocks = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
    return [block for block in blocks if ("tf.estimator" in block) == of_estimator]


@pytest.mark.any_line
@pytest.mark.quick
@pytest.mark.parametrize("block", python_blocks(of_estimator=False))
def test_python_blocks_train_on_two_workers(block: str, tmp_path: Path) -> None:
    script = tmp_path / "readme.py"
    script.write_text(_DATASET + block + 'print("trained", strategy.num_replicas_in_sync)\n')
    with ProcessGroup(tmp_path) as group:
        command = [sys.executable, "-m", "tf_strategies.launch.run", "--workers", "2", str(script)]
        run = group.start("tfs-run", command)
        assert run.wait(timeout=120) == 0
        assert run.log().count("trained 2") == 2


@needs_estimator
def test_the_block_of_estimator_trains_and_evaluates(tmp_path: Path) -> None:
    (block,) = python_blocks(of_estimator=True)
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
