"""Workers whose gradients are on GPUs. All of them share the first GPU of the machine."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Mapping

import pytest

from tests.support.checks import names_of_checks, require_checks
from tests.support.processes import ProcessGroup, ReservedPorts

pytestmark = pytest.mark.gpu

WORKER = "tests.cluster.native.gpu_worker"


def sees(*visible: str) -> Mapping[str, str]:
    """Returns what each worker sees."""
    return lambda index: {"CUDA_VISIBLE_DEVICES": visible[index]}


@pytest.mark.parametrize(
    ("visible", "replicas"),
    [(("0", "0"), 1), (("0", "0", "0"), 1), (("0", ""), 1), (("0", "0"), 2)],
    ids=["two", "three", "gpu-and-cpu", "replicas"],
)
def test_sums_and_training(visible: tuple, replicas: int, tmp_path: Path) -> None:
    names = names_of_checks(WORKER)
    require_checks(
        tmp_path,
        WORKER,
        str(replicas),
        *names,
        workers=len(visible),
        expected=names,
        fresh=True,
        env=sees(*visible),
    )


def test_compression(tmp_path: Path) -> None:
    from tests.cluster.native.gpu_worker import OF_COMPRESSION

    names = [check.__name__ for check in OF_COMPRESSION]
    require_checks(tmp_path, WORKER, "1", *names, workers=2, expected=names, fresh=True, env=sees("0", "0"))


def test_collectives_equal_numpy(tmp_path: Path) -> None:
    for log in require_checks(
        tmp_path, "tests.cluster.native.native_ops_worker", "auto", workers=2, fresh=True, env=sees("0", "0")
    ):
        assert "transport: " in log


def test_a_lost_worker_is_named(tmp_path: Path) -> None:
    with ReservedPorts(2) as ports, ProcessGroup(tmp_path) as group:
        first, second = group.start_workers(
            ports.addresses, "tests.cluster.native.gpu_endless_worker", fresh=True, env=sees("0", "0")
        )
        first.wait_for_text("step 20", timeout=120)
        second.signal(signal.SIGKILL)
        assert first.wait(timeout=30) == 3
        assert "worker 1" in first.log().partition("LOST")[2]
