"""Every collective operation in real processes, against NumPy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.checks import require_checks


@pytest.mark.parametrize(
    ("size", "transport", "wire"),
    [
        pytest.param(3, "auto", "sysv", marks=pytest.mark.quick),
        pytest.param(2, "tcp", "tcp", marks=pytest.mark.any_line),
    ],
)
def test_collectives_equal_numpy_on_every_worker(
    size: int, transport: str, wire: str, tmp_path: Path
) -> None:
    for log in require_checks(tmp_path, "tests.cluster.native.native_ops_worker", transport, workers=size):
        assert wire in log.partition("transport: ")[2]
