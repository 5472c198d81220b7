"""Training on parameter servers that was killed goes on, also with other servers: real processes, killed at given steps."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
from pathlib import Path
from typing import Iterator

import pytest

from tests.support.processes import tf_config
from tests.support.servers import ServerCluster
from tf_strategies.callbacks.checkpoint_file import parse

_WORKER = "tests.cluster.parameter_server.parameter_server_checkpoint_worker"
_SECONDS = 150
KILLED = -signal.SIGKILL


@pytest.mark.any_line
@pytest.mark.timeout(700)
def test_all_killed_while_the_chief_saves_go_on_with_other_servers_and_workers(tmp_path: Path) -> None:
    with cluster(tmp_path, "first", servers=2, workers=3) as first:
        first.start(str(tmp_path), "first")
        assert first["worker0"].wait(_SECONDS) == KILLED
        for name in ("worker1", "worker2", "ps0", "ps1"):
            assert first[name].returncode is None
            first[name].signal(signal.SIGKILL)
    assert list((tmp_path / "sync").glob(".saving-*")), "the chief was to be killed while it saved"
    shutil.copytree(tmp_path / "sync", tmp_path / "sync copy")
    with cluster(tmp_path, "second", servers=1, workers=3) as second:
        second.start(str(tmp_path), "second")
        second.require_good_end(_SECONDS)
    with cluster(tmp_path, "third", servers=3, workers=2) as third:
        third.start(str(tmp_path), "third")
        evaluator = third.group.start_preloaded(
            "evaluator0",
            _WORKER,
            str(tmp_path),
            "third",
            env={"TF_CONFIG": tf_config(third.addresses, "evaluator", 0)},
        )
        third.require_good_end(_SECONDS)
        assert "the evaluator ends" in evaluator.log()
        assert len(re.findall(r"^evaluated \S+ of step \d+: loss ", evaluator.log(), re.M)) >= 2


@pytest.mark.keras
@pytest.mark.quick
def test_a_worker_and_a_chief_that_come_back_go_on_at_their_epoch_and_restore_nothing(tmp_path: Path) -> None:
    """Of 3 epochs with 6 batches for each, worker 1 dies in the second and the chief in the third."""
    with cluster(tmp_path, "alive", servers=2, workers=2) as alive:
        for role, index in (("ps", 0), ("ps", 1), ("worker", 0)):
            alive.start_one(role, index, str(tmp_path), "alive", "0:14")
        alive.start_one("worker", 1, str(tmp_path), "alive", "1:8")
        for index in (1, 0):
            assert alive[f"worker{index}"].wait(_SECONDS) == KILLED
        for index in (1, 0):
            alive.start_one("worker", index, str(tmp_path), "alive", again=" again")
        for index, (before, epoch) in {0: (14, 2), 1: (8, 1)}.items():
            again = alive[f"worker{index} again"]
            assert again.wait(_SECONDS) == 0
            assert last_step(alive[f"worker{index}"].log()) == before
            assert f"began at epoch {epoch} batch 0" in again.log()
            assert last_step(again.log()) == 6 * (3 - epoch)
            assert "in all 40 40" in again.log()  # 14 and 8 steps before the kills, 6 and 12 after
        for index in (0, 1):
            assert alive[f"ps{index}"].wait(20) == 0


@pytest.mark.any_line
def test_a_server_that_comes_back_alone_makes_the_chief_restore_all(tmp_path: Path) -> None:
    """What the other still holds is newer than the checkpoint, and does not count."""
    with cluster(tmp_path, "alive", servers=2, workers=2) as torn:
        torn.start(str(tmp_path), "alive", "0:14")
        assert torn["worker0"].wait(_SECONDS) == KILLED
        for name in ("worker1", "ps1"):
            torn[name].signal(signal.SIGKILL)
            assert torn[name].wait(10) == KILLED
        path = tmp_path / "backup" / "training.checkpoint"
        saved = parse(path.read_bytes(), str(path)).facts
        assert saved["epoch"] == 2 and saved["step"] >= 12
        for role, index in (("worker", 1), ("worker", 0), ("ps", 1)):
            torn.start_one(role, index, str(tmp_path), "alive", again=" again")
        again = [torn[f"worker{index} again"] for index in (0, 1)]
        for worker in again:
            assert worker.wait(_SECONDS) == 0
        assert "began at epoch 2 batch 0" in again[0].log()
        step = saved["step"] + sum(last_step(worker.log()) for worker in again)
        for worker in again:
            # Of the optimizer's own count, which is saved at another instant than the step, the steps between are missing.
            assert f"in all {step} " in worker.log(), step
        for name in ("ps0", "ps1 again"):
            assert torn[name].wait(20) == 0


@contextlib.contextmanager
def cluster(folder: Path, stage: str, *, servers: int, workers: int) -> Iterator[ServerCluster]:
    """With a folder of its own for the logs, and for where its workers meet."""
    (folder / stage).mkdir()
    with ServerCluster(folder / stage, _WORKER, servers=servers, workers=workers) as made:
        yield made


def last_step(log: str) -> int:
    return max(map(int, re.findall(r"^step (\d+)", log, re.M)), default=0)
