"""P workers train as one process with the joint batch, whatever is trained. Real processes, against Keras without a strategy."""

from __future__ import annotations

import functools
import json
import os
import tempfile
from pathlib import Path

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
        "ignored_class",
        "masked_words_adam",
        "masked_words_without_sparse_gradients_adam",
        "clipping_by_hand",
        "gan_with_two_optimizers",
        "clipping_by_global_norm",
        "batches_one_by_one",
        "loop_with_losses_over_the_global_batch",
    )
    if PROGRAMS[name].runs
)
ALL = tuple(name for name, each in PROGRAMS.items() if each.runs)
THE_OTHERS = tuple(name for name in ALL if name not in OF_EACH_IDEA)
IN_MATRIX = os.environ.get("TFS_MATRIX") == "1"
FOR_TABLE = "TFS_EXACTNESS_KEEP" in os.environ


@functools.cache
def plain(names: tuple) -> Path:
    """Returns the folder with what Keras alone gives, trained once."""
    folder = Path(tempfile.mkdtemp(prefix="plain-"))
    with ProcessGroup(folder) as group:
        group.start_preloaded("plain", "tests.exactness.worker", str(folder), "plain", *names)
        group.require_success(timeout=580)
    keep(folder, "plain")
    return folder


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
    with ReservedPorts(workers) as ports, ProcessGroup(folder) as group:
        arguments = ("tests.exactness.worker", str(folder), str(replicas), *names)
        if workers == 1:
            group.start_preloaded("alone", *arguments)
        else:
            group.start_workers(ports.addresses, *arguments)
        group.require_success(timeout=580)
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
    require_exact(tmp_path, 1, 1, OF_EACH_IDEA if IN_MATRIX else ALL)


@pytest.mark.any_line
@pytest.mark.quick
@pytest.mark.timeout(1200)
def test_two_workers_with_two_replicas(tmp_path: Path) -> None:
    require_exact(tmp_path, 2, 2, OF_EACH_IDEA)
