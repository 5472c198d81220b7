"""Example 12 as its first lines say: Estimator on a chief, workers, a server and an evaluator."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")

from tests.support.estimators import needs_estimator, needs_no_estimator  # noqa: E402
from tests.support.processes import (  # noqa: E402
    REPOSITORY,
    Process,
    ProcessGroup,
    ReservedPorts,
    tf_config,
)
from tf_strategies.cluster import Cluster  # noqa: E402
from tf_strategies.launcher import run as tfs_run  # noqa: E402
from tf_strategies.launcher.arguments import make_parser  # noqa: E402

EXAMPLE = "examples/12_estimator.py"
TEXT = (REPOSITORY / EXAMPLE).read_text()
TASKS = [("chief", 0), ("worker", 0), ("worker", 1), ("ps", 0), ("evaluator", 0)]
TASKS_WITHOUT_SERVER = [task for task in TASKS if task[0] != "ps"]


def documented_command(strategy: str) -> list:
    """The options and arguments of tfs-run, of the command in the docstring that ends like this."""
    ending = "" if strategy == "sync" else f" --strategy {strategy}"
    (found,) = re.findall(rf"^ +tfs-run (.*{re.escape(EXAMPLE + ending)})$", TEXT, re.M)
    return found.split()


def start(group: ProcessGroup, folder: Path, strategy: str = "sync") -> Process:
    command = [*documented_command(strategy), "--model-dir", str(folder)]
    return group.start_python("tfs-run", "-m", "tf_strategies.launcher.run", *command)


def test_each_tf_config_is_what_tfs_run_sets_for_that_task() -> None:
    written = [
        Cluster.from_tf_config(text) for text in re.findall(r"TF_CONFIG='(\{.*?\}\})'", TEXT, re.DOTALL)
    ]
    assert [(each.task.role, each.task.index) for each in written] == TASKS
    command = ["--port-base", "2222", *documented_command("sync")]
    planned = tfs_run._plan(make_parser().parse_args(command), None)
    for cluster, process in zip(written, planned):
        set_by_tfs_run = Cluster.from_tf_config(process.tf_config.replace("127.0.0.1", "10.0.0.1"))
        assert cluster.addresses == set_by_tfs_run.addresses
        assert cluster.task == set_by_tfs_run.task


@needs_estimator
@pytest.mark.parametrize("strategy", ["sync", "collective"])
def test_the_example_trains_evaluates_and_exports(strategy: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with ProcessGroup(tmp_path) as group:
        if strategy == "sync":
            folder = tmp_path / "chief-and-evaluator"
            command = with_folders_of_their_own(tmp_path)
            run = group.start_python("tfs-run", "-m", "tf_strategies.launcher.run", *command)
        else:
            run = start(group, folder, strategy)
        assert run.wait(timeout=240) == 0
        log = run.log()
        for role, index in TASKS if strategy != "collective" else TASKS_WITHOUT_SERVER:
            assert re.search(rf"^tfs-run: {role} {index} .*ended with status 0", log, re.M), log
        step = int(re.search(r"^chief 0 +\| last checkpoint +model\.ckpt-(\d+)$", log, re.M)[1])
        assert step == 200
        accuracy = re.search(r"^evaluator 0 +\| test accuracy of the exported model +(\S+)$", log, re.M)[1]
        assert float(accuracy) > 0.8
        exported = Path(re.search(r"^evaluator 0 +\| exported model +(\S+)$", log, re.M)[1])
        assert exported.parent == folder / "export" / "digits"
        assert (exported / "saved_model.pb").is_file()
        assert "Warning" not in log
    if strategy == "sync":
        # The chief alone writes checkpoints, and the evaluator alone evaluates.
        assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {folder.name}
        assert (folder / f"model.ckpt-{step}.index").is_file()
        assert (folder / "eval").is_dir()


def with_folders_of_their_own(folder: Path) -> list:
    """The documented command, with a model_dir for each task; the evaluator has the chief's."""
    script = folder / "script.py"
    script.write_text(f"""
import json, os, runpy, sys
task = json.loads(os.environ["TF_CONFIG"])["task"]
own = "chief-and-evaluator" if task["type"] in ("chief", "evaluator") else f"{{task['type']}}-{{task['index']}}"
sys.argv[1:] = ["--model-dir", os.path.join({str(folder)!r}, own)]
runpy.run_path({str(REPOSITORY / EXAMPLE)!r}, run_name="__main__")
""")
    return [str(script) if word == EXAMPLE else word for word in documented_command("sync")]


@needs_estimator
def test_without_tf_config_one_process_does_it_all(tmp_path: Path) -> None:
    with ProcessGroup(tmp_path) as group:
        alone = group.start_python("alone", EXAMPLE, "--model-dir", str(tmp_path / "model"))
        assert alone.wait(timeout=120) == 0
        alone.wait_for_text(r"^last checkpoint +model\.ckpt-200$", timeout=5)
        alone.wait_for_text(r"^test accuracy of the exported model +0\.9\d$", timeout=5)


@needs_no_estimator
def test_without_estimator_every_task_ends_with_the_error(tmp_path: Path) -> None:
    with ReservedPorts(len(TASKS) - 1) as ports, ProcessGroup(tmp_path) as group:
        cluster = {"chief": ports.addresses[:1], "worker": ports.addresses[1:3], "ps": ports.addresses[3:]}
        for role, index in TASKS:
            group.start_preloaded(
                f"{role}{index}",
                "examples.12_estimator",
                *["--model-dir", str(tmp_path / "model")],
                env={"TF_CONFIG": tf_config(cluster, role, index)},
            )
        assert set(group.wait_all(timeout=120).values()) == {1}
        for role, index in TASKS:
            found = r"^AttributeError: TensorFlow \S+ has no Estimator"
            assert re.search(found, group[f"{role}{index}"].log(), re.M)
