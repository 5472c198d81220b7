"""benchmarks.allreduce with real contestants, those that this environment has."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

from benchmarks import allreduce_report
from benchmarks.allreduce_contestants import CONTESTANTS
from benchmarks.contest import _in_sessions
from tests.support import namespaces
from tests.support.processes import REPOSITORY, light_environment, wait_until

pytestmark = pytest.mark.any_line
needs_core = pytest.mark.skipif(bool(CONTESTANTS["core"].missing()), reason="run `make tools` first")


def run(folder, *arguments: str) -> tuple[str, list[dict]]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.allreduce", "--starts", "2", "--folder", str(folder), *arguments],
        cwd=REPOSITORY,
        env=light_environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, allreduce_report.read(folder / "allreduce.csv")


def test_contestants_are_measured_and_those_missing_are_named(tmp_path):
    wanted = ("core", "core_binary_blocks", "op", "ring", "horovod", "gloo", "openmpi")
    text, rows = run(
        tmp_path, "--workers", "2", "--bytes", "1024,65536", "--wires", "shared_memory",
        "--contestants", ",".join(wanted), "--starts", "1",
    )  # fmt: skip
    present = [name for name in (*wanted, "copy") if not CONTESTANTS[name].missing()]
    assert {"op", "ring"} <= set(present)
    assert [(row["bytes"], row["contestant"]) for row in rows] == [
        (size, name) for size in (1024, 65536) for name in present
    ]
    for row in rows:
        assert (row["wire"], row["workers"], row["rounds"]) == ("shared_memory", 2, 1)
        assert 0 < row["min_ms"] <= row["median_ms"] <= row["max_ms"] < 10_000
    for name in set(wanted) - set(present):
        assert f"without {name}: {CONTESTANTS[name].missing()}" in text
    compared = [row for row in rows if row["contestant"] != "copy"]
    assert allreduce_report.table(compared, "shared_memory", 2) in text
    assert (tmp_path / "allreduce_shared_memory.png").read_bytes().startswith(b"\x89PNG")


@needs_core
def test_tcp_has_the_limit_of_ucx_perftest(tmp_path):
    text, rows = run(
        tmp_path, "--workers", "3", "--bytes", "1048576", "--wires", "tcp", "--contestants", "core,core_ring"
    )
    assert [row["contestant"] for row in rows] == ["core", "core_ring", "copy"]
    assert {row["limit_ms"] > 0 for row in rows} == {True}
    assert "one stream of TCP on lo" in text
    core, ring, _ = rows
    assert ring["ratio_to_core"] == pytest.approx(ring["median_ms"] / core["median_ms"])


@needs_core
def test_an_interrupted_run_leaves_what_it_has(tmp_path):
    # As many starts as nobody waits for.
    command = [
        sys.executable, "-m", "benchmarks.allreduce", "--workers", "2", "--bytes", "1024,65536", "--starts", "500",
        "--wires", "shared_memory", "--contestants", "core,core_again", "--folder", str(tmp_path),
    ]  # fmt: skip
    with subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=light_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        lines = iter(process.stdout.readline, "")
        assert any("P=2 start 1 65,536 bytes: core" in line for line in lines)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=30)
    assert "interrupted" in text
    assert process.returncode == 0
    assert {row["bytes"] for row in allreduce_report.read(tmp_path / "allreduce.csv")} == {1024, 65536}
    text = (tmp_path / "allreduce.md").read_text()
    assert "## shared_memory" in text
    assert "Chance: the medians of the core and of the core, again, are " in text


def test_a_run_between_hosts_that_is_ended_leaves_nothing():
    if reason := namespaces.missing():
        pytest.skip(reason)
    command = [sys.executable, "-m", "benchmarks.between_hosts", "--rounds", "1000"]
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=light_environment(), stdout=subprocess.DEVNULL, start_new_session=True
    ) as front:
        wait_until(lambda: len(_in_sessions({front.pid})) == 5, 30, "four workers")
        front.send_signal(signal.SIGTERM)
        assert front.wait(timeout=30) == 128 + signal.SIGTERM
    wait_until(lambda: not _in_sessions({front.pid}), 10, "the end of the workers")
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, timeout=10).stdout
    assert f"tfs-bench-{front.pid}" not in left


def test_between_hosts_each_algorithm_is_measured_against_the_limit():
    if reason := namespaces.missing():
        pytest.skip(reason)
    command = ("--bytes", "8388608", "--algorithms", "hierarchical,binary_blocks", "--rounds", "1")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.between_hosts", *command],
        cwd=REPOSITORY,
        env=light_environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.findall(r"^\| 8,388,608 \| (\w+) \| .* \| ([\d.]+)× \|$", done.stdout, re.M)
    of_limit = {algorithm: float(times) for algorithm, times in found}
    assert set(of_limit) == {"hierarchical", "binary_blocks"}
    assert of_limit["hierarchical"] > 0.9
    assert of_limit["binary_blocks"] > 1.8
