"""Training with compressed gradients, in real processes, on the Keras that is in use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.budgets import this_line
from tests.support.checks import names_of_checks, require_checks
from tests.support.servers import ServerCluster

_WORKER = "tests.cluster.compression.compression_worker"
# Those that depend on Keras. The others look at what is sent and kept, and run on the newest line alone.
_ON_EVERY_LINE = [
    "check_top_k_with_error_feedback",
    "check_top_k_by_a_schedule",
    "check_deep_gradient_compression",
    "check_deep_gradient_compression_clips_what_each_worker_has",
    "check_a_gradient_that_is_not_finite_leaves_no_trace",
    "check_a_loss_scale_changes_nothing_but_which_steps_are_skipped",
    "check_fit_with_every_compressor",
    "check_what_is_kept_for_more_or_fewer_workers",
    "check_rows_of_embeddings",
]
# What several replicas of a worker change.
_WITH_TWO_REPLICAS = [
    "check_top_k_with_error_feedback",
    "check_deep_gradient_compression",
    "check_a_gradient_that_is_not_finite_leaves_no_trace",
]


@pytest.mark.quick
def test_three_workers(tmp_path: Path) -> None:
    names = names_of_checks(_WORKER)
    assert set(_ON_EVERY_LINE) < set(names)
    if this_line() != "newest":
        names = _ON_EVERY_LINE
    require_checks(tmp_path, _WORKER, "1", *names, workers=3, expected=names)


@pytest.mark.any_line
def test_two_workers_with_two_replicas_each(tmp_path: Path) -> None:
    assert set(_WITH_TWO_REPLICAS) < set(names_of_checks(_WORKER))
    require_checks(tmp_path, _WORKER, "2", *_WITH_TWO_REPLICAS, workers=2, expected=_WITH_TWO_REPLICAS)


@pytest.mark.quick
def test_three_workers_with_two_servers(tmp_path: Path) -> None:
    module = "tests.cluster.compression.compressed_servers_worker"
    with ServerCluster(tmp_path, module, servers=2, workers=3) as cluster:
        cluster.start(str(tmp_path))
        for log in cluster.require_good_end(timeout=280):
            assert re.findall(r"^passed (\w+)", log, re.M) == names_of_checks(module)
