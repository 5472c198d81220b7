"""P workers train as one process with the joint batch, whatever is trained. Real processes, against Keras without a strategy."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path

import pytest

from tests.exactness.compare import differences, require_equal_bits
from tests.exactness.programs import PROGRAMS
from tests.support.processes import ProcessGroup, ReservedPorts

pytestmark = pytest.mark.keras

LOG_TOLERANCE = 1e-5
# Two replicas in a process add nothing that depends on the kind of model: one program of each idea.
WITH_TWO_REPLICAS = (
    "scalar_loss_with_a_second_output_and_a_regularizer",
    "sum_loss_and_regularizer_adam",
    "ignored_class",
    "masked_words_adam",
    "clipping_by_hand",
    "gan_with_two_optimizers",
    "clipping_by_global_norm",
    "batches_one_by_one",
    "loop_with_losses_over_the_global_batch",
)


@functools.cache
def plain() -> Path:
    """Returns the folder with what Keras alone gives, trained once."""
    folder = Path(tempfile.mkdtemp(prefix="plain-"))
    with ProcessGroup(folder) as group:
        group.start_preloaded("plain", "tests.exactness.worker", str(folder), "plain")
        group.require_success(timeout=280)
    return folder


def require_exact(folder: Path, workers: int, replicas: int, *names: str) -> None:
    with ReservedPorts(workers) as ports, ProcessGroup(folder) as group:
        arguments = ("tests.exactness.worker", str(folder), str(replicas), *names)
        if workers == 1:
            group.start_preloaded("alone", *arguments)
        else:
            group.start_workers(ports.addresses, *arguments)
        group.require_success(timeout=290)
    expected = [name for name in names or PROGRAMS if PROGRAMS[name].runs]
    found = differences(folder, plain())
    assert list(found) == expected
    wrong = {
        name: far
        for name, far in found.items()
        if not (far["weights"] <= PROGRAMS[name].tolerance and far["logs"] <= LOG_TOLERANCE)
    }
    assert not wrong, json.dumps(wrong, indent=2)
    if workers > 1:
        require_equal_bits(folder, workers)


@pytest.mark.timeout(600)
def test_three_workers(tmp_path: Path) -> None:
    require_exact(tmp_path, 3, 1)


@pytest.mark.timeout(600)
def test_one_worker(tmp_path: Path) -> None:
    require_exact(tmp_path, 1, 1)


@pytest.mark.timeout(600)
def test_two_workers_with_two_replicas(tmp_path: Path) -> None:
    require_exact(tmp_path, 2, 2, *(name for name in WITH_TWO_REPLICAS if PROGRAMS[name].runs))
