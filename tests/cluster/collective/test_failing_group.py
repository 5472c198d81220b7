"""What fails on one worker inside or before a collective, and what its peers see of it: three real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.checks import require_checks


@pytest.mark.quick
@pytest.mark.waits
def test_a_collective_that_fails_on_one_of_three_workers(tmp_path: Path) -> None:
    require_checks(tmp_path, "tests.cluster.collective.failing_group_worker", workers=3)
