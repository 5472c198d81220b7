"""How data are split between workers, counted and put together again: in real processes, against NumPy and one process."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cluster.collective.data import MODULES
from tests.support.budgets import this_line
from tests.support.checks import names_of_checks, require_checks
from tests.support.processes import ProcessGroup, ReservedPorts

# With three workers one may have no data at all; the rest needs two, with several replicas each.
WITH_THREE = ("batches_smaller", "uneven", "sharding_off", "files", "predict_gives")
# Those that depend most on Keras. The others look at what tf.data does, and run on the newest line alone.
ON_EVERY_LINE = (
    "every_kind_of_data_trains",
    "evaluate_equals",
    "predict_gives",
    "steps_per_epoch",
    "batches_smaller",
    "dicts_and_eager_steps",
    "what_cannot_work",
    "batches_with_a_scalar",
    "one_line_in_the_log",
)


@pytest.mark.parametrize(
    ("size", "local_replicas"),
    [
        pytest.param(2, 2, marks=[pytest.mark.keras, pytest.mark.matrix, pytest.mark.quick]),
        pytest.param(3, 1, marks=pytest.mark.any_line),
    ],
)
def test_data_of_every_kind(size: int, local_replicas: int, tmp_path: Path) -> None:
    checks = [name for module in MODULES for name in names_of_checks(module)]
    parts = WITH_THREE if size == 3 else ON_EVERY_LINE if this_line() != "newest" else ("check_",)
    checks = [check for check in checks if any(part in check for part in parts)]
    assert len(checks) >= len(parts)
    arguments = [str(local_replicas), str(tmp_path), *checks]
    worker = "tests.cluster.collective.data_worker"
    require_checks(tmp_path, worker, *arguments, workers=size, expected=checks)


@pytest.mark.any_line
def test_data_that_should_be_the_same_and_are_not_end_all_workers(tmp_path: Path) -> None:
    require_checks(tmp_path, "tests.cluster.collective.differing_data_worker", workers=2)


@pytest.mark.any_line
def test_a_generator_that_raises_on_one_worker_ends_all(tmp_path: Path) -> None:
    with ReservedPorts(3) as ports, ProcessGroup(tmp_path) as group:
        workers = group.start_workers(ports.addresses, "tests.cluster.collective.failing_data_worker")
        assert all(status == 1 for status in group.wait_all(timeout=120).values())
        assert "the third batch cannot be read" in workers[1].log()
        for survivor in (workers[0], workers[2]):
            assert re.search(r"worker 1 \([0-9.:]+\)", survivor.log())
            assert "all steps done" not in survivor.log()
