"""The examples of docs/ run as they stand."""

from __future__ import annotations

from pathlib import Path
from typing import List, Tuple

import pytest

from tests.cluster.examples.documents import DATASET, python_blocks, run_with_tfs_run
from tests.support.estimators import needs_estimator
from tests.support.processes import REPOSITORY, consecutive_ports

DOCUMENTS = REPOSITORY / "docs"
ESTIMATOR = "estimator.md"
PORT = "9464"  # in metrics.md; another program may have it here
WITH_SERVERS = ("async_parameter_server.md", "sync_replicas.md")

# Each block is a program of its own, with these names.
_IN_A_PAGE = """
import tempfile
import keras
import tf_strategies as tfs
folder = tempfile.mkdtemp()
"""
_CLOSE = "\nstrategy.close()\n"

_MODEL = """
import importlib
import tensorflow as tf
import tf_strategies as tfs
tf.compat.v1.logging.set_verbosity("ERROR")
example = importlib.import_module("examples.12_estimator")
model_fn, train_input_fn, test_input_fn = example.model_fn, example.train_input_fn, example.test_input_fn
"""


def programs_of(pages: List[Path]) -> List[Tuple[str, str]]:
    return [
        (page.name, DATASET + _IN_A_PAGE + block + _CLOSE) for page in pages for block in python_blocks(page)
    ]


@pytest.mark.any_line
def test_python_blocks_run_on_two_workers(tmp_path: Path) -> None:
    pages = [page for page in DOCUMENTS.glob("*.md") if page.name not in {ESTIMATOR, *WITH_SERVERS}]
    programs = programs_of(sorted(pages))
    assert len(programs) >= 5
    text = "".join(
        f"exec({program!r}, {{}})\nprint('ran', {name!r}, flush=True)\n" for name, program in programs
    )
    assert text.count(PORT) == 1
    with consecutive_ports(2) as first:
        log = run_with_tfs_run(tmp_path, text.replace(PORT, str(first)), "--workers", "2", timeout=400)
    for name, _ in programs:
        assert log.count(f"ran {name}") == 2 * [each for each, _ in programs].count(name)


@pytest.mark.any_line
@pytest.mark.parametrize(
    ("name", "program"),
    programs_of([DOCUMENTS / name for name in WITH_SERVERS]),
    ids=lambda text: text if text in WITH_SERVERS else "",
)
def test_a_python_block_runs_on_two_workers_and_servers(name: str, program: str, tmp_path: Path) -> None:
    text = f"{program}print('ran', {name!r}, flush=True)\n"
    log = run_with_tfs_run(tmp_path, text, "--workers", "2", "--ps", "2")
    assert log.count(f"ran {name}") == 2


@needs_estimator
def test_the_block_of_estimator_trains_and_evaluates(tmp_path: Path) -> None:
    (block,) = python_blocks(DOCUMENTS / ESTIMATOR)
    folder = tmp_path / "model"
    text = f"{_MODEL}folder = {str(folder)!r}\n{block}print('ended')\n"
    options = ["--chief", "--workers", "2", "--ps", "1", "--evaluator"]
    assert run_with_tfs_run(tmp_path, text, *options, timeout=240).count("| ended") == 4
    assert (folder / "model.ckpt-100.index").is_file()
    assert list((folder / "eval").glob("events.out.tfevents.*"))
