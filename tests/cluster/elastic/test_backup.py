"""An elastic `fit` that saves goes on when all workers were lost, with the result of a run that lost none."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any, Dict

import pytest

from tests.cluster.elastic.job import Job, require_expected
from tests.cluster.elastic.task import BATCHES, EPOCHS
from tests.support.processes import Process
from tf_strategies.callbacks.checkpoint_file import read_facts

_SAVE_FREQ = 4


def place_of(folder: Path) -> int:
    """Returns the number of batches after which a backup was made."""
    facts = read_facts(folder / "training.checkpoint")
    return int(facts["epoch"] * BATCHES + facts["batches"])


def run(folder: Path, size: int, data: str, faults: Dict[int, Any], backup: str) -> Dict[int, Process]:
    """Runs workers. Those without a fault must have the result of one process."""
    folder.mkdir()
    job = Job(folder, size, data, faults, backup=backup, save_freq=_SAVE_FREQ)
    workers = job.run()
    for result in job.results(workers):
        require_expected(result)
    return workers


def count_batches(worker: Process) -> int:
    return len(re.findall(r"^batch \d+ ", worker.log(), re.M))


@pytest.mark.keras
def test_training_goes_on_after_the_loss_of_one_worker_and_then_of_all(tmp_path: Path) -> None:
    """The first one is lost while it saves."""
    backup = tmp_path / "backup"
    faults = {0: ["kill", "saving"], 1: ["kill", 14], 2: ["kill", 14]}
    workers = run(tmp_path / "1", 3, "arrays", faults, str(backup))
    assert [each.wait(1) for each in workers.values()] == [-signal.SIGKILL] * 3
    assert [each.name for each in backup.iterdir()] == ["training.checkpoint"]  # the left-over is gone
    assert place_of(backup) == 3 * _SAVE_FREQ
    workers = run(tmp_path / "2", 2, "arrays", {}, str(backup))
    assert [count_batches(each) for each in workers.values()] == [BATCHES * EPOCHS - 3 * _SAVE_FREQ] * 2
    assert not backup.exists()


@pytest.mark.any_line
def test_each_chief_saves_and_the_farthest_backup_counts(tmp_path: Path) -> None:
    """Also if each worker has a folder of its own. When SIGTERM ends all, nothing is lost."""
    backup = str(tmp_path / "backup{rank}")
    folders = [tmp_path / f"backup{rank}" for rank in range(3)]
    run(tmp_path / "1", 3, "unknown", {0: ["kill", 6], 1: ["kill", 17], 2: ["kill", 17]}, backup)
    places = [place_of(folder) for folder in folders[:2]]
    assert places == [_SAVE_FREQ, 3 * _SAVE_FREQ]
    assert not folders[2].exists()

    workers = run(tmp_path / "2", 2, "unknown", {0: ["terminate", 6], 1: ["terminate", 6]}, backup)
    for worker in workers.values():
        assert worker.wait(1) == 128 + signal.SIGTERM
        saved = re.search(
            r"SIGTERM asked all workers to end\. Training is saved at epoch (\d), after batch (\d)",
            worker.log(),
        )
        assert saved is not None, worker.log()
    place = (int(saved[1]) - 1) * BATCHES + int(saved[2])
    assert place_of(folders[0]) == place > places[1]

    workers = run(tmp_path / "3", 1, "unknown", {}, backup)
    assert count_batches(workers[0]) == BATCHES * EPOCHS - place
    assert not folders[0].exists()
