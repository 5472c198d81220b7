"""Four workers on the digits: asynchronous, and synchronous with a slow one, with and without a backup worker."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.checks import names_of_checks
from tests.support.servers import ServerCluster


@pytest.mark.any_line  # tests/cluster/parameter_server/synchronous_checks.py runs on every line
@pytest.mark.quick
@pytest.mark.waits
def test_four_workers_with_one_server(tmp_path: Path) -> None:
    module = "tests.cluster.parameter_server.sync_replicas_worker"
    with ServerCluster(tmp_path, module, servers=1, workers=4) as cluster:
        cluster.start(str(tmp_path))
        for log in cluster.require_good_end(timeout=280):
            assert re.findall(r"^passed (\w+)", log, re.M) == names_of_checks(module)
