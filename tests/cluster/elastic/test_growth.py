"""`fit` goes on with a worker that is not in the TF_CONFIG with which the job began."""

from __future__ import annotations

import concurrent.futures
import json
import re
from pathlib import Path
from typing import Any, Dict

import pytest

from tests.cluster.elastic.job import require_expected
from tests.support.processes import Process, ProcessGroup, ReservedPorts, tf_config, wait_until
from tf_strategies.cluster import Cluster, Task
from tf_strategies.control_plane import herald
from tf_strategies.control_plane.coordinator import joining
from tf_strategies.control_plane.herald import Herald
from tf_strategies.control_plane.succession import newcomer_terms
from tf_strategies.errors import OptionsError
from tf_strategies.native import membership
from tf_strategies.native.communicator import agreed_options
from tf_strategies.native.membership import Membership, form_first
from tf_strategies.options import CommunicationOptions, Elastic
from tf_strategies.secret import read_secret

_SECONDS = 120
_WORKER = "tests.cluster.elastic.growing_worker"


def test_a_new_worker_trains_as_the_others(tmp_path: Path) -> None:
    """Two of them join a first one, and one is lost, comes back, meets a worker with a shorter list, and trains alone at last."""
    plan: Dict[str, Any] = {
        "folder": str(tmp_path),
        "batch": "global",
        "meetings": [[4, 7, 3], [11, 13, 3], [17, 19, 3], [22, 27, 3]],
        "faults": {
            "worker 2": [["kill", 8]],
            "worker 0": [["kill", 14], ["terminate", 20]],
            "worker 1": [["terminate", 20]],
        },
    }
    with ReservedPorts(3) as ports, ProcessGroup(tmp_path) as group:
        names = [f"worker {index} ({address})" for index, address in enumerate(ports.addresses)]

        def start(index: int, known: int, run: int = 0, told: bool = True) -> Process:
            env = {"TF_CONFIG": tf_config({"worker": ports.addresses[:known]}, "worker", index)}
            if run and told:
                env["TF_STRATEGIES_RESTARTED"] = "1"
            given = [json.dumps(plan), *["again"] * run]
            return group.start_preloaded(f"worker{index}-{run}", _WORKER, *given, env=env)

        first = [start(0, known=1), start(1, known=2), start(2, known=3)]
        first[2].wait(_SECONDS)
        last = start(2, known=3, run=1)
        first[0].wait(_SECONDS)
        zero = start(0, known=2, run=1)
        assert (zero.wait(_SECONDS), first[1].wait(_SECONDS)) == (143, 143), zero.log() + first[1].log()
        # They know only one another, and would begin from the start.
        ends = [start(0, known=2, run=2, told=False), start(1, known=2, run=1, told=False), last]
        for each in ends:
            assert each.wait(_SECONDS) == 0, each.log()
    results = [json.loads(re.search("^result (.*)$", each.log(), re.M)[1]) for each in ends]
    assert [(each["rank"], each["size"]) for each in results] == [(0, 3), (1, 3), (2, 3)]
    for result in results:
        require_expected(result, normalized=True)
    assert f". {names[0]} trains on with rank 0 of 3, from epoch 1" in first[0].log()
    for line in (
        f"lost: {names[2]}. {names[1]} trains on with rank 1 of 2, from epoch",
        f"lost: {names[0]}. {names[1]} trains on with rank 0 of 2, from epoch",
        f"joined: {names[0]}. {names[1]} trains on with rank 1 of 3, from epoch",
    ):
        assert line in first[1].log()
    assert f"left: {names[0]}, {names[1]}. {names[2]} trains on with rank 0 of 1" in last.log()


@pytest.mark.any_line
def test_more_workers_than_may_train_do_not_begin() -> None:
    with ReservedPorts(3) as ports:
        cluster = Cluster({"worker": ports.addresses}, Task("worker", 1))
        with pytest.raises(OptionsError, match="max_workers is 2, but TF_CONFIG lists 3 workers"):
            form_first(cluster, CommunicationOptions(), Elastic(max_workers=2))


@pytest.mark.any_line
def test_a_worker_whose_others_have_ended_meanwhile_begins_with_those_of_its_own_list(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(herald, "_EVERY_SECONDS", 0.1)
    monkeypatch.setattr(joining, "_LISTEN_SECONDS", 1.0)
    monkeypatch.setattr(membership, "_LATER_SECONDS", 0.1)
    options, elastic = CommunicationOptions(timeout=10), Elastic(max_workers=3)
    with ReservedPorts(3) as ports, concurrent.futures.ThreadPoolExecutor(1) as pool:
        cluster = Cluster({"worker": ports.addresses[:1]}, Task("worker", 0))
        terms = newcomer_terms(cluster, agreed_options(options, elastic))
        message = {"type": "elsewhere", "name": "worker 2", "workers": list(ports.addresses), "terms": terms}
        speaker = Herald(ports.addresses[0], message, read_secret(), None)
        forming = pool.submit(form_first, cluster, options, elastic)
        try:
            wait_until(lambda: "worker 2 trains already" in caplog.text, 10, "the herald")
        finally:
            speaker.stop()
        formed = forming.result(20)
        assert isinstance(formed, Membership)
        formed.communicator.close()
        assert formed.names == [f"worker 0 ({ports.addresses[0]})"]
