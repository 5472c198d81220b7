"""The README's example runs as it stands."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support.processes import REPOSITORY, ProcessGroup

_DATASET = """
import numpy as np
import tensorflow as tf
dataset = tf.data.Dataset.from_tensor_slices((np.ones([96, 8], "float32"), np.ones([96], "int64"))).batch(32)
"""


def python_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("block", python_blocks())
def test_python_blocks_train_on_two_workers(block: str, tmp_path: Path) -> None:
    script = tmp_path / "readme.py"
    script.write_text(_DATASET + block + 'print("trained", strategy.num_replicas_in_sync)\n')
    with ProcessGroup(tmp_path) as group:
        command = [sys.executable, "-m", "tf_strategies.launch.run", "--workers", "2", str(script)]
        run = group.start("tfs-run", command)
        assert run.wait(timeout=120) == 0
        assert run.log().count("trained 2") == 2
