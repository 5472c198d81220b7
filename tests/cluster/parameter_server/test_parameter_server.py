"""The parameter-server strategies in real processes: two servers and three workers, on the Keras that is in use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.checks import names_of_checks
from tests.support.servers import ServerCluster


@pytest.mark.quick
def test_three_workers_with_two_servers(tmp_path: Path) -> None:
    worker, *others = (
        f"tests.cluster.parameter_server.{name}"
        for name in (
            "parameter_server_worker",
            "asynchronous_checks",
            "data_checks",
            "synchronous_checks",
            "synchronous_loss_checks",
            "mixed_precision_checks",
        )
    )
    names = [name for module in (worker, *others) for name in names_of_checks(module)]
    with ServerCluster(tmp_path, worker, servers=2, workers=3) as cluster:
        cluster.start(str(tmp_path))
        for log in cluster.require_good_end(timeout=360):
            assert re.findall(r"^passed (\w+)", log, re.M) == names
