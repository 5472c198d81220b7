"""The launcher of a test, which leaves no process behind."""

from __future__ import annotations

import pytest

from tests.cluster.launcher.launcher import Launcher
from tests.support.processes import ProcessGroup


@pytest.fixture
def launcher(tmp_path):
    with ProcessGroup(tmp_path) as group:
        yield Launcher(group, tmp_path)
        group.print_logs()
