"""`fit` goes on with a worker that is not in the TF_CONFIG with which the job began."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Dict

from tests.cluster.elastic.job import require_expected
from tests.support.processes import Process, ProcessGroup, ReservedPorts, tf_config

_SECONDS = 120
_WORKER = "tests.cluster.elastic.growing_worker"


def test_a_new_worker_trains_as_the_others(tmp_path: Path) -> None:
    """It joins, is lost, comes back, meets a worker that knows the shorter list, and is the last one in the end."""
    plan: Dict[str, Any] = {
        "folder": str(tmp_path),
        "meetings": [[4, 7, 3], [11, 13, 3], [17, 21, 3]],
        "faults": {
            "worker 2": [["kill", 8]],
            "worker 0": [["kill", 14], ["terminate", 22]],
            "worker 1": [["terminate", 22]],
        },
    }
    with ReservedPorts(3) as ports, ProcessGroup(tmp_path) as group:
        names = [f"worker {index} ({address})" for index, address in enumerate(ports.addresses)]

        def start(index: int, known: int, again: bool = False) -> Process:
            env = {"TF_CONFIG": tf_config({"worker": ports.addresses[:known]}, "worker", index)}
            name, given = f"worker{index}", [json.dumps(plan)]
            if again:
                env["TF_STRATEGIES_RESTARTED"], name, given = "1", f"{name}-again", [*given, "again"]
            return group.start_preloaded(name, _WORKER, *given, env=env)

        first = [start(0, known=2), start(1, known=2), start(2, known=3)]
        first[2].wait(_SECONDS)
        last = start(2, known=3, again=True)
        first[0].wait(_SECONDS)
        zero = start(0, known=2, again=True)
        assert last.wait(_SECONDS) == 0, last.log()
        assert (zero.wait(_SECONDS), first[1].wait(_SECONDS)) == (143, 143), zero.log() + first[1].log()
    result = json.loads(re.search("^result (.*)$", last.log(), re.M)[1])
    require_expected(result)
    assert (result["rank"], result["size"]) == (0, 1)
    for line in (
        f"joined: {names[2]}. {names[1]} trains on with rank 1 of 3, from epoch",
        f"lost: {names[2]}. {names[1]} trains on with rank 1 of 2, from epoch",
        f"lost: {names[0]}. {names[1]} trains on with rank 0 of 2, from epoch",
        f"joined: {names[0]}. {names[1]} trains on with rank 1 of 3, from epoch",
    ):
        assert line in first[1].log()
    assert f"left: {names[0]}, {names[1]}. {names[2]} trains on with rank 0 of 1" in last.log()
