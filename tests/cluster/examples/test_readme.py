"""The examples of the README run as they stand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.examples.documents import DATASET, python_blocks, run_with_tfs_run
from tests.support.processes import REPOSITORY


@pytest.mark.any_line
@pytest.mark.quick
@pytest.mark.parametrize("block", python_blocks(REPOSITORY / "README.md"))
def test_python_blocks_train_on_two_workers(block: str, tmp_path: Path) -> None:
    text = DATASET + block + 'print("trained", strategy.num_replicas_in_sync)\n'
    assert run_with_tfs_run(tmp_path, text, "--workers", "2").count("trained 2") == 2
