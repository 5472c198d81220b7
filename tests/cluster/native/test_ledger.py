"""The ledger in a server of TensorFlow, used from other processes."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.support.checks import names_of_checks
from tests.support.processes import ProcessGroup, ReservedPorts

# Training on parameter servers uses the ledger on every line, and tests/unit/native/test_ledger.py all its operations.
pytestmark = pytest.mark.any_line
WORKER = "tests.cluster.native.ledger_worker"


def test_ledger_of_a_server(tmp_path: Path) -> None:
    with ReservedPorts(1) as ports, ProcessGroup(tmp_path) as group:
        address = ports.addresses[0]
        server = group.start_python("server", "-m", "tests.cluster.native.ledger_server", address)
        server.wait_for_text("serving", timeout=90)
        mortal = group.start_python("mortal", "-m", WORKER, address, "join")
        checks = group.start_python("checks", "-m", WORKER, address, "check")
        checks.wait_for_text("waits for the other", timeout=200)
        mortal.wait_for_text("entered", timeout=60)
        mortal.signal(signal.SIGKILL)
        assert mortal.wait(timeout=30) == -signal.SIGKILL
        assert checks.wait(timeout=60) == 0
        assert re.findall(r"^passed (\w+)", checks.log(), re.MULTILINE) == names_of_checks(WORKER)
        server.wait_for_text(r"^lost worker 1 \(client\)", timeout=10)
        assert server.returncode is None
