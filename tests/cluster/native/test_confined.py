"""Workers on a host that gives little shared memory, as containers do: they work and say what they use, or what is missing."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.support import confine
from tests.support.leftovers import nothing_left
from tests.support.processes import Process, ProcessGroup, light_environment

_SECONDS = 150
pytestmark = pytest.mark.any_line
_OURS = ("-m", "tests.cluster.native.native_ops_worker")


def run_confined(group: ProcessGroup, limits: str, transport: str) -> Process:
    """tfs-run with two workers under `limits`, at its end; skips the test where a host cannot be confined so."""
    launch = [sys.executable, "-m", "tf_strategies.launcher.run", "--workers", "2", *_OURS, transport]
    run = group.start(
        "tfs-run", [sys.executable, "-m", "tests.support.confine", limits, *launch], env=light_environment()
    )
    if run.wait(_SECONDS) == confine.SKIPPED:
        pytest.skip(run.log())
    return run


@pytest.mark.parametrize(
    ("limits", "transport"),
    [("sysv", "cma+posix (same host)"), ("shm,sysv,cma", "tcp")],
)
def test_all_collectives_work_over_what_the_host_allows(limits: str, transport: str, tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group, nothing_left(group):
        run = run_confined(group, limits, "auto")
        assert run.wait(1) == 0
        assert re.findall(r"\| transport: (.*)$", run.log(), re.M) == [transport] * 2
        assert len(re.findall(r"goes on with (?:UCX_TLS=posix|TCP)", run.log())) == 2


def test_shared_memory_that_was_asked_for_and_cannot_be_had_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group, nothing_left(group):
        run = run_confined(group, "shm,sysv", "shared_memory")
        assert run.wait(1) == 1
        message = re.search(r"BootstrapError: (worker \d \(.*)", run.log())
        assert message is not None
        assert "the transport could not be opened" in message[1]
        assert "df /dev/shm" in message[1]
        assert "transport='tcp'" in message[1]
