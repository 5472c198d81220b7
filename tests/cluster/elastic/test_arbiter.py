"""Either of two workers can be lost, if there is an arbiter."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Optional

import pytest

from tests.cluster.elastic.job import Job, require_expected
from tests.support import namespaces
from tests.support.processes import ProcessGroup, ReservedPorts
from tests.support.switch import Switch
from tf_strategies.cluster import Cluster, Task
from tf_strategies.errors import BootstrapError
from tf_strategies.native import membership
from tf_strategies.native.membership import form_first
from tf_strategies.options import CommunicationOptions, Elastic

_SECONDS = 30


def _start_arbiter(group: ProcessGroup, folder: Path, address: str, hosts: Optional[Switch] = None) -> None:
    command = [sys.executable, "-m", "tf_strategies.arbiter.main", address, "--votes", str(folder / "votes")]
    process = group.start("arbiter", command if hosts is None else hosts.inside(2, *command))
    process.wait_for_text(f"the arbiter listens on {address};", _SECONDS)


@pytest.mark.keras
def test_the_second_of_two_workers_trains_on_alone(tmp_path: Path) -> None:
    with ReservedPorts(1) as ports, ProcessGroup(tmp_path) as group:
        _start_arbiter(group, tmp_path, ports.addresses[0])
        job = Job(tmp_path, 2, "arrays", {0: ["kill", 12]}, arbiter=ports.addresses[0])
        workers = job.run()
        assert f"{job.names[1]} may train on" in group["arbiter"].log()
    (result,) = job.results(workers)
    require_expected(result)
    assert f"lost: {job.names[0]}. {job.names[1]} trains on with rank 0 of 1" in workers[1].log()


@pytest.mark.any_line
@pytest.mark.waits
def test_of_two_hosts_that_one_leaves_the_network_the_other_trains_on(tmp_path: Path) -> None:
    reason = namespaces.missing()
    if reason:
        pytest.skip(reason)
    with Switch(3) as hosts, ProcessGroup(tmp_path) as group:
        arbiter = f"{hosts.addresses[2]}:2222"
        _start_arbiter(group, tmp_path, arbiter, hosts)
        job = Job(tmp_path, 2, "arrays", {0: ["cut", 12]}, hosts=hosts, arbiter=arbiter)
        workers = job.run()
    (result,) = job.results(workers)
    require_expected(result)
    end = re.search(r"^ended at \S+ with BootstrapError lost=False: (.*)$", workers[0].log(), re.M)
    assert end is not None, workers[0].log()
    assert f"only 1 of 2 workers found one another, and the arbiter at {arbiter} does not answer" in end[1]


@pytest.mark.any_line
@pytest.mark.parametrize("rank", [0, 1])
def test_training_does_not_begin_without_its_arbiter(rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "ARBITER_SECONDS", 0.5)
    with ReservedPorts(3) as ports:
        cluster = Cluster({"worker": ports.addresses[:2]}, Task("worker", rank))
        arbiter = ports.addresses[2]
        with pytest.raises(
            BootstrapError,
            match=rf"{arbiter} does not answer \(.*\); start it with: tfs-arbiter {arbiter} --votes FILE$",
        ):
            form_first(cluster, CommunicationOptions(), Elastic(arbiter=arbiter))


@pytest.mark.any_line
def test_an_arbiter_that_each_host_would_look_for_on_itself_is_refused() -> None:
    cluster = Cluster({"worker": ("10.213.9.1:22022", "10.213.9.2:22022")}, Task("worker", 0))
    with pytest.raises(BootstrapError, match="other hosts cannot reach the arbiter at localhost:2300"):
        form_first(cluster, CommunicationOptions(), Elastic(arbiter="localhost:2300"))
