"""Training with compressed gradients, in real processes, on the Keras that is in use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.checks import names_of_checks, require_checks
from tests.support.servers import ServerCluster

_WORKER = "tests.cluster.compression.compression_worker"
# What several replicas of a worker change.
_WITH_TWO_REPLICAS = [
    "check_top_k_with_error_feedback",
    "check_deep_gradient_compression",
    "check_a_gradient_that_is_not_finite_leaves_no_trace",
]


@pytest.mark.quick
def test_three_workers(tmp_path: Path) -> None:
    require_checks(tmp_path, _WORKER, "1", workers=3)


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
