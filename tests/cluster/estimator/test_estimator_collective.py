"""tf.estimator.train_and_evaluate trains with CollectiveAllReduceStrategy as one process with the joint batch: real processes."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest
import tensorflow as tf

from tests.support.checks import names_of_checks, require_checks
from tests.support.estimators import needs_estimator
from tests.support.leftovers import nothing_left
from tests.support.processes import ProcessGroup, ReservedPorts, tf_config

pytestmark = needs_estimator

_CHECKS = "tests.cluster.estimator.estimator_collective_worker"
_TASK = "tests.cluster.estimator.estimator_task_worker"
_START_SECONDS = 90
_SURVIVORS_SECONDS = 5
_ENDED = re.compile(r"ended at (\S+) with (\w+) lost=(\w+): (.*)")
_KINDS = ["check_canned_estimators", "check_model_to_estimator"]
_EXACT = ["check_v1_optimizer_with_batch_normalization", "check_legacy_keras_optimizer"]


def test_two_workers_train_estimators_of_all_kinds(tmp_path: Path) -> None:
    logs = require_checks(tmp_path, _CHECKS, str(tmp_path), workers=2)
    assert len(names_of_checks(_CHECKS)) == len(re.findall(r"^passed", logs[0], re.M))
    still_had_batches = [log for log in logs if "has no batch left" in log]
    assert len(still_had_batches) == 1
    assert re.search(r"worker 1 \(\S+\)\S* has no batch left; training ends", still_had_batches[0])


def test_three_workers_train_as_one_process(tmp_path: Path) -> None:
    require_checks(tmp_path, _CHECKS, str(tmp_path), *_EXACT, workers=3, expected=_EXACT)


@pytest.mark.parametrize("listed", [pytest.param(True, marks=pytest.mark.smoke), False])
def test_one_worker_trains_with_and_without_a_cluster(listed: bool, tmp_path: Path) -> None:
    with ReservedPorts(1) as ports, ProcessGroup(tmp_path) as group:
        if listed:
            group.start_workers(ports.addresses, _CHECKS, str(tmp_path), *_EXACT)
        else:
            group.start_preloaded("alone", _CHECKS, str(tmp_path), *_EXACT, *_KINDS)
        group.require_success(timeout=_START_SECONDS)


@pytest.mark.parametrize("roles", [("chief", "worker", "evaluator"), ("chief", "evaluator")])
def test_the_chief_alone_writes_and_an_evaluator_follows(roles: tuple, tmp_path: Path) -> None:
    model = tmp_path / "model"
    with (
        ReservedPorts(len(roles)) as ports,
        ProcessGroup(tmp_path) as group,
        nothing_left(group, ports.ports),
    ):
        cluster = dict(zip(roles, ([each] for each in ports.addresses)))
        for role in cluster:
            environment = {"TF_CONFIG": tf_config(cluster, role, 0)}
            group.start_preloaded(role, _TASK, str(model), "60", env=environment)
        group.require_success(timeout=_START_SECONDS)
        evaluated = [int(step) for step in re.findall(r"^evaluated (\d+)", group["evaluator"].log(), re.M)]
        assert "replicas 1\n" in group["evaluator"].log()
        for role in roles[:-1]:
            assert f"replicas {len(roles) - 1}\n" in group[role].log()
            assert "step 60\n" in group[role].log()
    assert evaluated == sorted(evaluated)
    assert evaluated[-1] == 60
    for name in ("best", "final"):
        (exported,) = (model / "export" / name).iterdir()
        served = tf.saved_model.load(str(exported)).signatures["serving_default"]
        assert next(iter(served(tf.ones([2, 4])).values())).shape == [2, 1]
    names = {each.name for each in model.iterdir()}
    assert {"model.ckpt-60.index", "graph.pbtxt", "eval"} <= names
    assert len(list(model.glob("events.*"))) == 1
    assert not [name for name in names if name.startswith("tmp")]


def test_a_killed_worker_is_named_and_a_restart_goes_on(tmp_path: Path) -> None:
    first = 0
    for victim in (1, 0, None):
        logs = tmp_path / f"victim-{victim}"
        logs.mkdir()
        with ReservedPorts(2) as ports, ProcessGroup(logs) as group, nothing_left(group, ports.ports):
            for index in range(2):
                folder = tmp_path / (f"model-{index}" if index == 0 else f"model-{index}-{victim}")
                steps = "100000" if victim is not None else str(first + 10)
                group.start_workers(ports.addresses, _TASK, str(folder), steps, only=[index])
            if victim is None:
                group.require_success(timeout=_START_SECONDS)
            else:
                killed_at = _kill(group, victim, after=first + 45)
                ended_at, message = _end_of(group, 1 - victim)
                assert f"worker {victim} ({ports.addresses[victim]}) is lost" in message
                assert ended_at - killed_at < _SURVIVORS_SECONDS
            for index in range(2):
                steps = re.findall(r"^step (\d+)$", group[f"worker{index}"].log(), re.M)
                assert int(steps[0]) == first + 1
            if victim is None:
                assert int(steps[-1]) == first + 10
        saved = tf.train.latest_checkpoint(str(tmp_path / "model-0"))
        first = int(saved.rpartition("-")[2])
        assert first >= 40
    assert not any(tmp_path.glob("model-1-*"))


def _kill(group: ProcessGroup, victim: int, after: int) -> float:
    group[f"worker{victim}"].wait_for_text(rf"^step {after}$", timeout=_START_SECONDS)
    killed_at = time.monotonic()
    group[f"worker{victim}"].signal(signal.SIGKILL)
    return killed_at


def _end_of(group: ProcessGroup, survivor: int) -> tuple[float, str]:
    process = group[f"worker{survivor}"]
    assert process.wait(timeout=30) == 3, process.log()
    found = _ENDED.search(process.log())
    assert found is not None, process.log()
    assert found[3] == "True", found[0]
    return float(found[1]), found[4]
