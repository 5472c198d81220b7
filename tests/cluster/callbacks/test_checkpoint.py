"""A run that was killed goes on, and ends with the same bits as one that was not: real processes, signals at given steps."""

from __future__ import annotations

import importlib.metadata
import os
import re
import signal
from pathlib import Path
from typing import Optional, Sequence

import pytest

from tests.support.processes import ProcessGroup, ReservedPorts

KERAS = importlib.metadata.version("tf_keras" if os.environ.get("TF_USE_LEGACY_KERAS") == "1" else "keras")
pytestmark = [
    pytest.mark.matrix,
    pytest.mark.quick,
    pytest.mark.skipif(
        KERAS.startswith(("3.3.", "3.4.", "3.5.", "3.6.")), reason="BackupAndRestore needs Keras 3.7"
    ),
]
KILLED = -signal.SIGKILL


@pytest.mark.timeout(900)
def test_workers_killed_at_a_step_or_while_saving_go_on_exactly(tmp_path: Path) -> None:
    run_stage(tmp_path, 1, passes=[], killed=[1])
    run_stage(tmp_path, 2, passes=["continued_dataset"], killed=[0])
    assert list((tmp_path / "arrays").glob(".saving-*")), "the chief was to be killed while it saved"
    run_stage(tmp_path, 3, passes=["continued_arrays"], killed=[], preempted=1)
    passes = ["continued_steps", "wrong_checkpoints", "saved_models"]
    run_stage(tmp_path, 4, passes=passes, killed=[], preempted=1, batches="0")
    assert (tmp_path / "end" / "training.checkpoint").exists()


def run_stage(
    folder: Path,
    stage: int,
    passes: Sequence[str],
    killed: Sequence[int],
    preempted: Optional[int] = None,
    batches: str = "[12]",
) -> None:
    """Both workers pass; those to be killed are, and a survivor ends with an error that names who was lost.

    When one is preempted by SIGTERM, both end, and say who it was, after these batches of epoch 3.
    """
    logs = folder / f"stage{stage}"
    logs.mkdir()
    with ReservedPorts(2) as ports, ProcessGroup(logs) as group:
        group.start_workers(
            ports.addresses, "tests.cluster.callbacks.checkpoint_worker", str(folder), str(stage)
        )
        statuses = group.wait_all(timeout=400)
        for index in range(2):
            log = group[f"worker{index}"].log()
            assert re.findall(r"^passed (\w+)", log, re.M) == list(passes)
            if preempted is not None:
                assert statuses[f"worker{index}"] == 128 + signal.SIGTERM
                where = r"in \S+/training.checkpoint" if index == 0 else r"by worker 0 \(\S+\)"
                saved = re.search(
                    rf"SIGTERM asked worker {preempted} \(\S+\) to end\. .* saved at epoch 3, after batch ({batches}), {where};",
                    log,
                )
                assert saved
                (folder / "batches_of_epoch_3").write_text(saved.group(1))
            elif index in killed:
                assert statuses[f"worker{index}"] == KILLED
            elif killed:
                assert statuses[f"worker{index}"] == 1
                assert re.search(
                    rf"WorkerLostError.*worker {killed[0]}\b|worker {killed[0]} .*(lost|left)", log
                )
            else:
                assert statuses[f"worker{index}"] == 0
