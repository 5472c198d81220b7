"""What the strategy promises, in three real processes with two replicas each, on the Keras that `import keras` gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.collective.behaviour import MODULES
from tests.support.checks import names_of_checks, require_checks


@pytest.mark.quick
def test_three_workers_with_two_replicas_each(tmp_path: Path) -> None:
    require_checks(
        tmp_path,
        "tests.cluster.collective.strategy_behaviour_worker",
        str(tmp_path),
        workers=3,
        expected=[name for module in MODULES for name in names_of_checks(module)],
    )
