"""`tf.estimator.train_and_evaluate` on parameter servers: real processes of every role, of which some are killed."""

from __future__ import annotations

import re
import shutil
import signal
from pathlib import Path
from typing import Dict, List, Set, Tuple

import numpy as np
import pytest

from tests.support.estimators import FEATURES, needs_estimator
from tests.support.processes import Process, ProcessGroup, wait_until
from tests.support.servers import ServerCluster

pytestmark = needs_estimator

_WORKER = "tests.cluster.estimator.estimator_servers_worker"
_SECONDS = 150
_NOTICE_SECONDS = 8
_MANY_STEPS = 600
# How many steps may be made after the last: each worker has read the count some steps of others ago.
_LATE = {"async": 10, "sync": 0}
_CHECKPOINTS_AND_EVENTS = ("*.index", "*.data-*", "checkpoint", "*.tfevents.*", "graph.pbtxt")


def saved_steps(folder: Path) -> List[int]:
    """The global steps that checkpoints hold: names are older where asynchronous workers train on while the chief saves."""
    import tensorflow as tf

    found = []
    for path in folder.glob("*.index"):
        reader = tf.train.load_checkpoint(str(path.with_suffix("")))
        (name,) = [name for name in reader.get_variable_to_shape_map() if "global_step" in name]
        found.append(int(reader.get_tensor(name)))
    return sorted(found)


def weights_at(folder: Path, step: int) -> Dict[str, np.ndarray]:
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(folder / f"model.ckpt-{step}"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def summaries_in(folder: Path) -> Set[str]:
    import tensorflow as tf

    (events,) = folder.glob("*.tfevents.*")
    found = tf.compat.v1.train.summary_iterator(str(events))
    return {value.tag for event in found for value in event.summary.value}


def last_step(folder: Path) -> int:
    return max(int(path.name.split("-")[1].split(".")[0]) for path in folder.glob("*.index"))


def steps_of(log: str) -> List[int]:
    return [int(step) for step in re.findall(r"^global step (\d+) at", log, re.M)]


def wait_for_step(process: Process, step: int) -> None:
    wait_until(
        lambda: max(steps_of(process.log()), default=-1) >= step, 60, f"{process.name} to make step {step}"
    )


def evaluated(folder: Path) -> Tuple[int, Dict[str, float]]:
    """The last that an evaluator has found: the step, and metrics by name."""
    import tensorflow as tf

    (events,) = (folder / "eval").glob("*.tfevents.*")
    found: Dict[int, Dict[str, float]] = {}
    for event in tf.compat.v1.train.summary_iterator(str(events)):
        for value in event.summary.value:
            found.setdefault(event.step, {})[value.tag] = value.simple_value
    last = max(found)
    return last, found[last]


def begin_with(folder: Path, other: Path) -> None:
    """Training in the folder begins with the initial values of another."""
    folder.mkdir(parents=True)
    for path in other.glob("model.ckpt-0.*"):
        shutil.copy(path, folder)
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-0"\n')


@pytest.mark.parametrize(
    ("strategy", "kinds"),
    [
        ("async", ["custom", "deep", "linear", "keras", "exported"]),
        ("sync", ["custom", "keras", "exported"]),
    ],
)
def test_every_kind_of_estimator_trains_and_is_evaluated_and_exported(
    strategy: str, kinds: List[str], tmp_path: Path
) -> None:
    models = tmp_path / "models"
    with ServerCluster(tmp_path, _WORKER, servers=2, workers=1, chief=True, evaluator=True) as cluster:
        cluster.start(strategy, ",".join(kinds), str(models), "100")
        cluster.require_good_end(_SECONDS)
        assert "initialized" in cluster["chief0"].log()
        assert "initialized" not in cluster["worker0"].log()
    for kind in kinds:
        step, metrics = evaluated(models / kind)
        assert metrics["accuracy"] > 0.7, (kind, metrics)
        saved = saved_steps(models / kind)
        # An evaluator ends with the first checkpoint of 100 steps or more; the chief may save another of late steps.
        assert step in saved
        assert 100 <= step <= saved[-1] <= 100 + _LATE[strategy]
        own = models / kind / "of worker"
        assert [path for pattern in _CHECKPOINTS_AND_EVENTS for path in own.glob(pattern)] == []
        shards = {path.name.rpartition("-of-")[2] for path in (models / kind).glob("*.data-*")}
        assert shards == {"00001"}, "servers wrote files of their own"
    assert {"loss", "largest_logit"} <= summaries_in(models / "custom")
    for exporter in ("final", "best"):
        assert list((models / "exported" / "export" / exporter).glob("*/saved_model.pb"))


@pytest.mark.parametrize("case", [pytest.param("momentum", marks=pytest.mark.smoke), "keras_optimizer"])
def test_synchronous_training_is_that_of_one_process_with_the_joint_batch(case: str, tmp_path: Path) -> None:
    with ServerCluster(tmp_path, _WORKER, servers=2, workers=1, chief=True) as cluster:
        cluster.start("sync", case, str(tmp_path / "together"), "40")
        cluster.require_good_end(_SECONDS)
    begin_with(tmp_path / "alone" / case, tmp_path / "together" / case)
    with ProcessGroup(tmp_path) as group:
        group.start_preloaded("alone", _WORKER, "one", case, str(tmp_path / "alone"), "40")
        group.require_success(_SECONDS)
    for step in (20, 40):
        alone = weights_at(tmp_path / "alone" / case, step)
        together = weights_at(tmp_path / "together" / case, step)
        start = weights_at(tmp_path / "together" / case, 0)
        assert set(alone) == set(together)
        for name, value in alone.items():
            np.testing.assert_allclose(together[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
        assert np.abs(together["hidden/kernel"] - start["hidden/kernel"]).max() > 0.01


def test_compressed_gradients_change_the_largest_entries_alone(tmp_path: Path) -> None:
    with ServerCluster(tmp_path, _WORKER, servers=1, workers=1, chief=True) as cluster:
        cluster.start("compressed", "wide", str(tmp_path / "models"), "1")
        cluster.require_good_end(_SECONDS)
    before, after = (weights_at(tmp_path / "models" / "wide", step)["hidden/kernel"] for step in (0, 1))
    of_each_worker = -(-FEATURES * 2048 // 100)
    assert 0 < np.count_nonzero(before != after) <= 2 * of_each_worker


@pytest.mark.parametrize("strategy", ["async", "sync"])
def test_an_early_stop_of_the_chief_ends_all(strategy: str, tmp_path: Path) -> None:
    with ServerCluster(tmp_path, _WORKER, servers=1, workers=1, chief=True) as cluster:
        cluster.start(strategy, "stopping", str(tmp_path / "models"), "100000")
        cluster.require_good_end(_SECONDS)
        for name in ("chief0", "worker0"):
            assert 20 <= steps_of(cluster[name].log())[-1] < 1000
        assert "stops all" in cluster["chief0"].log()


@pytest.mark.waits
@pytest.mark.parametrize("strategy", ["async", "sync"])
def test_a_killed_worker_and_a_killed_chief_start_again_and_training_goes_on(
    strategy: str, tmp_path: Path
) -> None:
    arguments = strategy, "slow", str(tmp_path / "models"), str(_MANY_STEPS)
    with ServerCluster(tmp_path, _WORKER, servers=2, workers=2, chief=True) as cluster:
        cluster.start(*arguments)
        wait_for_step(cluster["worker1"], 30)
        cluster["worker1"].kill()
        again = cluster.start_one("worker", 1, *arguments, again=" again")
        wait_for_step(again, 100)
        cluster["chief0"].kill()
        new_chief = cluster.start_one("chief", 0, *arguments, again=" again")
        for process in (again, new_chief, cluster["worker0"], cluster["ps0"], cluster["ps1"]):
            assert process.wait(_SECONDS) == 0, process.name
        assert steps_of(again.log())[0] > 30, "a worker that comes back finds the variables as they are"
        assert 80 <= steps_of(new_chief.log())[0] < _MANY_STEPS, "a chief restores the last checkpoint"
        for index in (0, 1):
            cluster.require_served(index)
    assert _MANY_STEPS <= last_step(tmp_path / "models" / "slow") <= _MANY_STEPS + _LATE[strategy]


@pytest.mark.waits
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_server_ends_all_with_its_name(how: signal.Signals, tmp_path: Path) -> None:
    with ServerCluster(tmp_path, _WORKER, servers=2, workers=1, chief=True) as cluster:
        cluster.start("async", "slow", str(tmp_path / "models"), "100000", "10")
        for name in ("chief0", "worker0"):
            wait_for_step(cluster[name], 20)
        cluster["ps1"].signal(how)
        for name in ("chief0", "worker0"):
            assert cluster[name].wait(_NOTICE_SECONDS) == 1
            log = cluster[name].log()
            assert "ServerLostError" in log, log
            assert f"{cluster.name_of('ps', 1)} no longer answers" in log, log
        cluster["ps1"].kill()
        cluster["ps0"].wait(30)


def test_other_variables_on_a_worker_are_refused_by_name(tmp_path: Path) -> None:
    with ServerCluster(tmp_path, _WORKER, servers=1, workers=1, chief=True) as cluster:
        for role, case in (("ps", "wide"), ("chief", "wide"), ("worker", "custom")):
            cluster.start_one(role, 0, "sync", case, str(tmp_path / "models"), "100", "10")
        names = cluster.name_of("chief", 0), cluster.name_of("worker", 0)
        # The second to come is refused; a chief goes on alone, a worker waits for a chief in vain.
        assert 1 in [cluster[name].wait(60) for name in ("chief0", "worker0")]
        logs = cluster["chief0"].log() + cluster["worker0"].log()
        found = re.search(r"'variable 1 of graph 0' differs between (.*?) and (.*?);", logs)
        assert "ValueError at" in logs and found and set(found.groups()) == set(names), logs
        cluster["ps0"].kill()


def test_weights_that_are_trained_by_hand_are_refused_where_gradients_are_added_up(tmp_path: Path) -> None:
    with ServerCluster(tmp_path, _WORKER, servers=1, workers=1, chief=True) as cluster:
        cluster.start("sync", "by_hand", str(tmp_path / "models"), "10", "10")
        for name in ("chief0", "worker0"):
            assert cluster[name].wait(60) == 1
            assert "hidden/kernel:0 is trained by assignments" in cluster[name].log()
        cluster["ps0"].kill()


@pytest.mark.waits
def test_a_worker_that_does_not_see_the_last_checkpoint_says_for_whom_it_waits(tmp_path: Path) -> None:
    """The chief sees that `max_steps` were made; the worker, with a folder of its own, does not."""
    arguments = "sync", "custom", str(tmp_path / "models"), "10", "5"
    for folder in ("first", "again"):
        (tmp_path / folder).mkdir()
        with ServerCluster(tmp_path / folder, _WORKER, servers=1, workers=1, chief=True) as cluster:
            cluster.start(*arguments)
            if folder == "first":
                cluster.require_good_end(_SECONDS)
                continue
            assert cluster["chief0"].wait(60) == 0
            assert cluster["worker0"].wait(60) == 1
            expected = f"{cluster.name_of('worker', 0)} waited 5 s for {cluster.name_of('chief', 0)} to initialize or restore"
            assert expected in cluster["worker0"].log()
            cluster["ps0"].kill()


def test_a_script_moves_over_from_sync_replicas_optimizer(tmp_path: Path) -> None:
    """Its SyncReplicasOptimizer(..., replicas_to_aggregate=2, total_num_replicas=3) becomes one strategy: the slowest is not
    waited for."""
    with ServerCluster(tmp_path, _WORKER, servers=1, workers=2, chief=True) as cluster:
        cluster.start("backup", "custom", str(tmp_path / "models"), "60")
        cluster.require_good_end(_SECONDS)
        counts = re.search(r"counted=\((\d+), (\d+), (\d+)\)", cluster["chief0"].log())
        assert counts
        chief, fast, slow = map(int, counts.groups())
        # The slowest may find at its end that the others have gone, and have made a step alone.
        assert 0 <= chief + fast + slow - 2 * 60 <= 1
        assert 2 * slow < fast
    assert last_step(tmp_path / "models" / "custom") in (60, 61)
