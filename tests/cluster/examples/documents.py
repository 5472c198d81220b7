"""Reads the Python blocks of documents, and runs them as scripts of tfs-run."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import List

from tests.support.processes import ProcessGroup

__all__ = ["DATASET", "python_blocks", "run_with_tfs_run"]

# The documents use this dataset without making it.
DATASET = """
import numpy as np
import tensorflow as tf
dataset = tf.data.Dataset.from_tensor_slices((np.ones([96, 8], "float32"), np.ones([96], "int64"))).batch(32)
"""


def python_blocks(document: Path) -> List[str]:
    return re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)


def run_with_tfs_run(folder: Path, text: str, *options: str, timeout: float = 120) -> str:
    """Runs a script on the processes that the options of tfs-run name. Returns their output."""
    script = folder / "script.py"
    script.write_text(text)
    with ProcessGroup(folder) as group:
        command = [sys.executable, "-m", "tf_strategies.launcher.run", *options, str(script)]
        run = group.start("tfs-run", command)
        assert run.wait(timeout) == 0
        return run.log()
