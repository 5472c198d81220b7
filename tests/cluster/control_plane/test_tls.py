"""Workers that disagree about TLS all end within some ten seconds, and each says with whom, why, and what to set."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Dict, List

import pytest

from tests.cluster.control_plane.groups import Group, refusal_of
from tests.support import certificates
from tests.support.processes import Process, ProcessGroup, ReservedPorts
from tf_strategies.tls import TLS_FOLDER

pytestmark = [pytest.mark.any_line, pytest.mark.waits]
# The folder of worker 0, that of the others, and why they do not trust it.
DISAGREEMENTS = (
    ("tls", "", "it uses TLS, and this task does not"),
    ("", "tls", "this task uses TLS, and it does not"),
    ("tls", "another", "its certificate is refused: unable to get local issuer certificate"),
)


def test_workers_that_disagree_about_tls_all_end_and_say_why(tmp_path: Path, monkeypatch) -> None:
    folders: Dict[str, str] = {"": ""}
    for name in ("tls", "another"):
        folders[name] = certificates.make(tmp_path / name)
    size = 3
    with ReservedPorts(size * len(DISAGREEMENTS)) as ports, ProcessGroup(tmp_path) as processes:
        started: List[List[Process]] = []
        groups = []
        for number, (first, others, _) in enumerate(DISAGREEMENTS):
            groups.append(Group(processes, ports.addresses[size * number : size * (number + 1)]))
            started.append([])
            for rank in range(size):
                monkeypatch.setenv(TLS_FOLDER, folders[others if rank else first])
                label = f"group{number}-worker{rank}"
                started[-1].append(groups[-1].start(rank, ["barrier"], timeout=40, label=label))
        since = time.monotonic()
        for group, workers, (_, _, reason) in zip(groups, started, DISAGREEMENTS):
            for rank, worker in enumerate(workers):
                refusal = refusal_of(worker)
                if rank == 0:
                    assert f"{group.name(0)} waits in vain for worker" in refusal
                said = rf"worker [12] \(\S+\) does not trust {re.escape(group.name(0))}: {reason}"
                assert re.search(said, refusal), refusal
                assert "set TF_STRATEGIES_TLS on all tasks" in refusal
        assert time.monotonic() - since < 15
