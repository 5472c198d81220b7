"""Tests tfs-run with programs in place of ssh, and its agent: what is slow, odd or ends early."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.cluster.launcher.launcher import RUN, Launcher, gone
from tests.support.processes import REPOSITORY, Process, wait_until
from tf_strategies.launcher.cluster_plan import Counts, plan_cluster
from tf_strategies.launcher.share import Share

pytestmark = [pytest.mark.any_line, pytest.mark.quick, pytest.mark.waits]
LOGIN = "for last; do :; done; cd /; "
RUNS = 'exec sh -c "$last"\n'
HANGS = 'echo $$ > "$DIR/pid"; exec sleep 60\n'


def ssh(folder: Path, body: str) -> str:
    path = folder / "ssh"
    path.write_text("#!/bin/sh\n" + LOGIN + body)
    path.chmod(0o755)
    return str(path)


def interrupt(process: Process, folder: Path, *numbers: signal.Signals) -> None:
    """Sends signals when ssh hangs, and checks that both end."""
    pid = folder / "pid"
    wait_until(lambda: pid.exists() and pid.read_text().endswith("\n"), 20, "ssh")
    for number in numbers:
        process.signal(number)
    assert process.wait(4) in [128 + number for number in numbers]
    wait_until(lambda: gone(int(pid.read_text())), 5, "the end of ssh")
    assert "Traceback" not in process.log()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_wait_for_a_host_that_does_not_answer(
    number: signal.Signals, launcher: Launcher
) -> None:
    process = launcher.start("--ssh", ssh(launcher.folder, HANGS), "--hosts", "127.0.0.1:1", code="note()")
    interrupt(process, launcher.folder, number)


def test_signals_end_a_start_whose_long_request_nobody_reads(launcher: Launcher) -> None:
    second = 'if mkdir "$DIR/asked"; then ' + RUNS + "fi\n" + HANGS
    arguments = ("--ssh", ssh(launcher.folder, second), "--hosts", "127.0.0.1:1")
    process = launcher.start(*arguments, "--env", "LONG=" + 100_000 * "x", code="note()")
    interrupt(process, launcher.folder, signal.SIGINT, signal.SIGTERM)


def test_a_long_request_arrives(launcher: Launcher) -> None:
    arguments = ("--ssh", ssh(launcher.folder, RUNS), "--hosts", "127.0.0.1:1", "--env", "DIR")
    long = [f"--env=LONG{index}={100_000 * 'x'}" for index in range(3)]
    status, _ = launcher.run(*arguments, *long, code="note(long=len(os.environ['LONG2']))")
    assert status == 0
    assert launcher.seen()["worker0"]["long"] == 100_000


def test_login_shells_may_write_and_paths_may_be_relative(launcher: Launcher) -> None:
    (launcher.folder / "python").symlink_to(sys.executable)
    script = launcher.folder / "script.py"
    script.write_text("import os; print('own', os.environ['OWN'] == '', os.environ['PYTHONPATH'])")
    program = ssh(launcher.folder, "printf 'Welcome! '\n" + RUNS)
    options = ("--ssh", program, "--hosts", "127.0.0.1:1", "--python", "./python", "--env", "OWN=")
    process = launcher.group.start(
        "tfs-run",
        [sys.executable, *RUN, *options, str(script)],
        env={"PYTHONPATH": os.path.relpath(REPOSITORY, launcher.folder)},
        cwd=launcher.folder,
    )
    assert process.wait(20) == 0
    assert f"worker 0 | own True {REPOSITORY}" in process.log()


def test_named_variables_reach_the_processes_of_this_host_too(launcher: Launcher) -> None:
    status, _ = launcher.run("--env", "OWN=a=b", code="note(own=os.environ['OWN'])")
    assert status == 0
    assert launcher.seen()["worker0"]["own"] == "a=b"
    status, log = launcher.run("--env", "=b", code="note()")
    assert (status, log) == (2, "tfs-run: error: --env '=b' has no name\n")


def test_an_agent_that_is_ended_before_it_starts_processes_leaves_no_secret(launcher: Launcher) -> None:
    folder = launcher.folder
    for name in ("tmp", "logs"):
        (folder / name).mkdir()
    os.mkfifo(folder / "logs" / "worker-0.log")  # opening it waits
    plan = tuple(plan_cluster(Counts(1), ["127.0.0.1"], lambda host, position: 2000))
    share = Share(plan, ("true",), ("worker 0",), log_dir=str(folder / "logs"))
    request = {"cwd": str(folder), "share": share.to_json(), "secret": "ab" * 32, "environ": {}}
    (folder / "request").write_text(json.dumps(request) + "\n")
    line = '(cat request; exec sleep 60) | { exec "$0" -m tf_strategies.launcher.agent; }'
    process = launcher.group.start(
        "agent", ["bash", "-c", line, sys.executable], env={"TMPDIR": str(folder / "tmp")}, cwd=folder
    )
    wait_until(lambda: list(folder.glob("tmp/*/secret")) != [], 20, "the secret")
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(10)
    wait_until(lambda: list((folder / "tmp").iterdir()) == [], 5, "the end of the secret")
