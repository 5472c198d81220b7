"""A group of workers on reserved ports."""

from __future__ import annotations

import pytest

from tests.cluster.control_plane.groups import Group
from tests.support.processes import ProcessGroup, ReservedPorts


@pytest.fixture
def group(tmp_path, request):
    with ReservedPorts(getattr(request, "param", 3)) as ports, ProcessGroup(tmp_path) as processes:
        yield Group(processes, ports.addresses)
        processes.print_logs()  # shown by pytest when the test fails
