"""P workers train as one process with the joint batch, whatever is trained. Real processes, against Keras without a strategy."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Dict

import pytest

from tests.exactness.compare import differences, require_equal_bits
from tests.exactness.programs import PROGRAMS
from tests.exactness.programs.registry import keras
from tests.support.processes import ProcessGroup, ReservedPorts

LOG_TOLERANCE = 1e-5
# One program of each idea: where there are two replicas in a process, and with tf_keras, whose code is that of Keras 2.15.
OF_EACH_IDEA = tuple(
    name
    for name in (
        "scalar_loss_with_a_second_output_and_a_regularizer",
        "sum_loss_and_regularizer_adam",
        "contrastive_loss_of_the_joint_batch",
        "ignored_class",
        "masked_words_adam",
        "masked_words_without_sparse_gradients_adam",
        "clipping_by_hand",
        "gan_with_two_optimizers",
        "clipping_by_global_norm",
        "batches_one_by_one",
        "loop_with_losses_over_the_global_batch",
        "loop_with_a_loss_of_keras",
    )
    if PROGRAMS[name].runs
)
ALL = tuple(name for name, each in PROGRAMS.items() if each.runs)
WITH_REPLICAS = tuple(name for name in ALL if PROGRAMS[name].local_replicas)
THE_OTHERS = tuple(name for name in ALL if name not in OF_EACH_IDEA)
FOR_TABLE = "TFS_EXACTNESS_KEEP" in os.environ


_plain: Dict[str, Any] = {}  # what Keras alone gives, by program


def plain(names: tuple) -> Path:
    """Returns a folder with what Keras alone gives; each program is trained once."""
    folder = Path(tempfile.mkdtemp(prefix="plain-"))
    needed = {PROGRAMS[name].reference or name for name in names}
    _plain.update(train_apart(folder, "plain", tuple(name for name in ALL if name in needed - set(_plain))))
    (folder / "plain.json").write_text(json.dumps(_plain))
    keep(folder, "plain")
    return folder


def train_apart(folder: Path, kind: str, names: tuple) -> Dict[str, Any]:
    """Returns what came out of the programs, each trained by one process; two processes share them."""
    halves = {folder / f"half{index}": half for index, half in enumerate((names[::2], names[1::2])) if half}
    with ProcessGroup(folder) as group:
        for half, theirs in halves.items():
            half.mkdir()
            group.start_preloaded(half.name, "tests.exactness.worker", str(half), kind, *theirs)
        group.require_success(timeout=1100)
    trained = [json.loads(path.read_text()) for half in halves for path in half.glob("*.json")]
    return {name: kept for each in trained for name, kept in each.items()}


def keep(folder: Path, name: str) -> None:
    """Copies what was trained to where `tests.exactness.table` reads it, if TFS_EXACTNESS_KEEP names a folder for it."""
    if "TFS_EXACTNESS_KEEP" in os.environ:
        kept = Path(os.environ["TFS_EXACTNESS_KEEP"], f"{keras.__name__} {keras.__version__}", name)
        kept.mkdir(parents=True, exist_ok=True)
        for path in folder.glob("*.json"):
            trained = kept / path.name
            before = json.loads(trained.read_text()) if trained.exists() else {}
            trained.write_text(json.dumps({**before, **json.loads(path.read_text())}))


def require_exact(folder: Path, workers: int, replicas: int, names: tuple) -> None:
    """Trains the programs, and compares them with plain Keras."""
    if workers == 1:
        trained = train_apart(folder, str(replicas), names)
        (folder / "worker0.json").write_text(json.dumps({name: trained[name] for name in names}))
    else:
        with ReservedPorts(workers) as ports, ProcessGroup(folder) as group:
            arguments = ("tests.exactness.worker", str(folder), str(replicas), *names)
            group.start_workers(ports.addresses, *arguments)
            group.require_success(timeout=1100)
    keep(folder, f"P={workers}" if replicas == 1 else f"P={workers} × {replicas} replicas")
    found = differences(folder, plain(names))
    assert tuple(found) == names
    wrong = {
        name: far
        for name, far in found.items()
        if not (far["weights"] <= PROGRAMS[name].tolerance and far["logs"] <= LOG_TOLERANCE)
    }
    assert not wrong, json.dumps(wrong, indent=2)
    if workers > 1:
        require_equal_bits(folder, workers)


@pytest.mark.keras
@pytest.mark.matrix
@pytest.mark.timeout(1200)
def test_three_workers(tmp_path: Path) -> None:
    require_exact(tmp_path, 3, 1, ALL if FOR_TABLE else OF_EACH_IDEA)


@pytest.mark.timeout(1200)
def test_two_workers(tmp_path: Path) -> None:
    """The other programs: on two cores two workers are faster than three."""
    require_exact(tmp_path, 2, 1, THE_OTHERS)


@pytest.mark.any_line
@pytest.mark.matrix
@pytest.mark.timeout(1200)
def test_one_worker(tmp_path: Path) -> None:
    require_exact(tmp_path, 1, 1, ALL if FOR_TABLE else OF_EACH_IDEA)


@pytest.mark.any_line
@pytest.mark.timeout(1200)
def test_one_worker_with_two_replicas(tmp_path: Path) -> None:
    few = (
        "scalar_loss_with_a_second_output_and_a_regularizer",
        "masked_words_adam",
        "loop_with_a_loss_of_keras",
    )
    require_exact(tmp_path, 1, 2, WITH_REPLICAS if FOR_TABLE else few)


@pytest.mark.any_line
@pytest.mark.quick
@pytest.mark.timeout(1200)
def test_two_workers_with_two_replicas(tmp_path: Path) -> None:
    require_exact(tmp_path, 2, 2, WITH_REPLICAS if FOR_TABLE else OF_EACH_IDEA)
