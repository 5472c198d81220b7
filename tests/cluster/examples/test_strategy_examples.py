"""The examples run as their first lines say, in few steps."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.processes import REPOSITORY, Process, ProcessGroup, ReservedPorts, tf_config


def start(group: ProcessGroup, name: str, example: str, *arguments: str, env: dict) -> Process:
    """Starts an example with TensorFlow imported, as `python -m` does."""
    return group.start_preloaded(name, f"examples.{example.removesuffix('.py')}", *arguments, env=env)


def test_an_example_is_a_script(tmp_path: Path) -> None:
    """The others run as modules, which saves each process the import of TensorFlow."""
    with ProcessGroup(tmp_path) as group:
        alone = group.start_python(
            "alone", str(REPOSITORY / "examples/01_single_process.py"), "--epochs", "2"
        )
        alone.wait_for_text(r"^test accuracy 0\.\d\d on 1 replica of 1 worker$", timeout=120)
        assert alone.wait(timeout=30) == 0


@pytest.mark.any_line
def test_two_of_four_workers_are_killed_and_the_weights_are_those_of_one_process(tmp_path: Path) -> None:
    launcher = ["-m", "tf_strategies.launcher.run", "--workers", "4", "--min-workers", "2"]
    example = [str(REPOSITORY / "examples/14_elastic.py"), "--epochs", "2", "--kill", "3:8,0:20"]
    with ProcessGroup(tmp_path) as group:
        run = group.start_python("tfs-run", *launcher, *example)
        assert run.wait(timeout=240) == 0
        run.wait_for_text(r"^worker 1 \| workers at the end +2$", timeout=5)
        difference = run.wait_for_text(r"^worker 1 \| largest difference of a weight +(\S+)$", timeout=5)
        assert float(difference[1]) < 1e-5


# Examples differ in what they use of the strategies, and these are tested on every line; two of each kind show that examples run.
@pytest.mark.parametrize(
    ("example", "workers", "expected"),
    [
        ("02_fit_three_workers.py", 3, r"^largest weight difference +0$"),
        ("03_custom_training_loop.py", 2, r"^train accuracy 0\.9\d with 2 workers$"),
        pytest.param("05_embeddings.py", 2, r"^rows per step, as sent +[\d,]+$", marks=pytest.mark.any_line),
        pytest.param(
            "07_one_process_per_host.py",
            2,
            r"^test accuracy 0\.[6-9]\d with 8 replicas in 2 processes$",
            marks=pytest.mark.any_line,
        ),
        pytest.param("15_local_steps.py", 2, r"^largest weight difference +0$", marks=pytest.mark.any_line),
        pytest.param("16_recipe_digits.py", 3, r"^largest weight difference +0$", marks=pytest.mark.any_line),
        pytest.param(
            "11_gradient_compression.py",
            2,
            r"^bytes a step, sent to other workers +[\d,]+$",
            marks=pytest.mark.any_line,
        ),
    ],
)
def test_example(example: str, workers: int, expected: str, tmp_path: Path) -> None:
    with ReservedPorts(workers) as ports, ProcessGroup(tmp_path) as group:
        for index in range(workers):
            environment = {"TF_CONFIG": tf_config({"worker": ports.addresses}, "worker", index)}
            start(group, f"worker{index}", example, "--epochs", "2", env=environment)
        assert set(group.wait_all(timeout=240).values()) == {0}
        group["worker0"].wait_for_text(expected, timeout=5)
        if workers == 3:
            group["worker0"].wait_for_text(r"^algorithm +binary_blocks$", timeout=5)
        for index in range(1, workers):
            assert "accuracy" not in group[f"worker{index}"].log()


@pytest.mark.any_line
def test_the_example_that_is_killed_goes_on(tmp_path: Path) -> None:
    command = ["--epochs", "3", "--directory", str(tmp_path / "backup")]
    for run, options in (("killed", ["--stop-after", "25"]), ("resumed", [])):
        with ReservedPorts(2) as ports, ProcessGroup(tmp_path) as group:
            for index in range(2):
                start(
                    group,
                    f"{run}{index}",
                    "04_checkpoint_and_resume.py",
                    *command,
                    *options,
                    env={"TF_CONFIG": tf_config({"worker": ports.addresses}, "worker", index)},
                )
            statuses = group.wait_all(timeout=240)
            if run == "killed":
                assert statuses == {"killed0": 1, "killed1": -signal.SIGKILL}
            else:
                assert set(statuses.values()) == {0}
                # 3 epochs of 15 steps, of which 20 were saved
                group["resumed0"].wait_for_text(r"^steps of this run +25$", timeout=5)
                group["resumed0"].wait_for_text(r"^weights +[0-9a-f]{16}$", timeout=5)


@pytest.mark.parametrize(
    ("example", "workers", "servers", "arguments", "expected"),
    [
        ("08_async_parameter_server.py", 2, 2, [], r"^updates, as the optimizer counts them +\d+$"),
        pytest.param(
            "09_sync_replicas.py",
            3,
            1,
            ["--backup-workers", "1", "--slow-seconds", "0.2"],
            r"^workers, of which backups +3, 1$",
            marks=pytest.mark.any_line,
        ),
    ],
)
def test_example_with_servers(
    example: str, workers: int, servers: int, arguments: list, expected: str, tmp_path: Path
) -> None:
    with ReservedPorts(workers + servers) as ports, ProcessGroup(tmp_path) as group:
        cluster = {"ps": ports.addresses[:servers], "worker": ports.addresses[servers:]}
        for role, addresses in cluster.items():
            for index in range(len(addresses)):
                start(
                    group,
                    f"{role}{index}",
                    example,
                    *["--epochs", "2", *arguments],
                    env={"TF_CONFIG": tf_config(cluster, role, index)},
                )
        assert set(group.wait_all(timeout=240).values()) == {0}
        group["worker0"].wait_for_text(expected, timeout=5)
        group["worker0"].wait_for_text(r"^test accuracy.* 0\.\d\d$", timeout=5)
        for index in range(1, workers):
            assert "accuracy" not in group[f"worker{index}"].log()


@pytest.mark.any_line
def test_the_example_with_an_evaluator(tmp_path: Path) -> None:
    with ReservedPorts(2) as ports, ProcessGroup(tmp_path) as group:
        cluster = {"ps": ports.addresses[:1], "worker": ports.addresses[1:]}
        for role in ("ps", "worker", "evaluator"):
            start(
                group,
                role,
                "10_evaluator.py",
                *["--epochs", "2", "--directory", str(tmp_path / "digits")],
                env={"TF_CONFIG": tf_config(cluster, role, 0)},
            )
        assert set(group.wait_all(timeout=240).values()) == {0}
        accuracy = group["worker"].wait_for_text(r"^test accuracy +(0\.\d\d)$", timeout=5)[1]
        group["evaluator"].wait_for_text(
            rf"^evaluated 2\.weights\.h5 of step 36: .*accuracy .*\n(.*\n)*last evaluation +{accuracy}$",
            timeout=5,
        )
