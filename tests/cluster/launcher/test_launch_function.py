"""Tests tfs.launch with real processes: results, output, failures, and that nothing is left running."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import tf_strategies as tfs
from tests.cluster.launcher.launcher import gone
from tests.support.processes import wait_until
from tf_strategies.launcher import launch as launching
from tf_strategies.launcher.supervisor import Patience
from tf_strategies.secret import SECRET_FILE, read_secret

pytestmark = [pytest.mark.any_line, pytest.mark.quick, pytest.mark.waits]


def task() -> str:
    found = json.loads(os.environ["TF_CONFIG"])["task"]
    return f"{found['type']} {found['index']}"


@pytest.fixture(autouse=True)
def short_patience(monkeypatch):
    monkeypatch.setattr(launching, "_PATIENCE", Patience(survivor_wait=0.3, grace=5))


def test_results_come_by_rank_and_those_of_servers_are_left_out():
    def work(factor, plus):
        trains = task().startswith(("chief", "worker"))
        return (task(), factor * np.arange(200_000) + plus) if trains else {"no result"}

    results = tfs.launch(work, args=[2], kwargs={"plus": 1}, workers=2, chief=True, ps=1, evaluator=True)
    assert [name for name, _ in results] == ["chief 0", "worker 0", "worker 1"]
    assert all(np.array_equal(array, np.arange(1, 400_001, 2)) for _, array in results)


def test_each_process_has_its_cluster_a_secret_and_the_environment():
    def look():
        config = json.loads(os.environ["TF_CONFIG"])
        names = ("OMP_NUM_THREADS", "OWN", "HERE")
        return {
            "cluster": config["cluster"],
            "secret": read_secret(),
            "cwd": str(Path.cwd()),
            "variables": [os.environ.get(name) for name in names],
        }

    with contextlib.ExitStack() as restored:
        os.environ["HERE"] = "here"
        restored.callback(os.environ.pop, "HERE")
        one, other = tfs.launch(look, workers=2, threads=3, environment={"OWN": "1", SECRET_FILE: ""})
    assert one == other
    assert one["variables"] == ["3", "1", "here"]
    assert len(set(one["cluster"]["worker"])) == 2
    assert len(one["secret"]) == 32
    assert one["cwd"] == str(Path.cwd())


def test_output_is_written_to_sys_stdout_as_it_comes(tmp_path):
    class Cell(io.StringIO):
        def write(self, text):
            if "ready" in text:
                (tmp_path / "seen").touch()
            return super().write(text)

    def work(folder):
        print("ready\xe9", flush=True)
        end = time.monotonic() + 20
        while not (folder / "seen").exists():
            assert time.monotonic() < end
            time.sleep(0.01)

    out, err = Cell(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert tfs.launch(work, args=[tmp_path], workers=1, chief=True) == [None, None]
    assert sorted(out.getvalue().splitlines()) == ["chief 0  | ready\xe9", "worker 0 | ready\xe9"]
    assert re.search(
        r"tfs-run: starting 2 processes.*\n(.*\n)*tfs-run: worker 0 .* ended with status 0", err.getvalue()
    )


def pids(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir()]


def note_and_hold(folder: Path, others: int) -> None:
    """Notes the process, waits for others, and goes on for a long time."""
    (folder / str(os.getpid())).touch()
    end = time.monotonic() + 20
    while len(list(folder.iterdir())) < others:
        assert time.monotonic() < end
        time.sleep(0.01)
    if task() == "worker 0":
        time.sleep(60)


def raises(folder):
    note_and_hold(folder, 2)
    raise KeyError("no such row")


def test_an_exception_ends_all_and_is_raised_here_with_its_traceback(tmp_path):
    with pytest.raises(
        tfs.LaunchError, match=r"^worker 1 failed: KeyError: 'no such row'\n\nTraceback"
    ) as caught:
        tfs.launch(raises, args=[tmp_path], workers=2)
    assert caught.value.task == "worker 1"
    assert 'raise KeyError("no such row")' in caught.value.traceback
    assert "function_task" not in caught.value.traceback
    assert len(pids(tmp_path)) == 2 and all(map(gone, pids(tmp_path)))


@pytest.mark.parametrize(
    ("ending", "message"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by SIGKILL"),
        (lambda: os._exit(7), "ended with status 7"),
        (lambda: sys.exit(5), "ended with status 5"),
    ],
    ids=["killed", "exited", "sys.exit"],
)
def test_a_process_that_ends_otherwise_is_named_with_the_signal_or_status(ending, message, tmp_path):
    def work(folder):
        note_and_hold(folder, 2)
        ending()

    with pytest.raises(tfs.LaunchError, match=rf"^worker 1 failed: {message} after \d+\.\d s$") as caught:
        tfs.launch(work, args=[tmp_path], workers=2)
    assert (caught.value.task, caught.value.traceback) == ("worker 1", "")
    assert all(map(gone, pids(tmp_path)))


def test_a_process_that_ends_well_but_too_early_is_named():
    with pytest.raises(
        tfs.LaunchError, match=r"^worker 0 ended before the function returned: .* status 0"
    ) as caught:
        tfs.launch(lambda: os._exit(0), workers=1)
    assert caught.value.task == "worker 0"


def test_a_result_of_another_type_is_refused_by_name():
    message = r"^worker 0 failed: TypeError: the result .* cannot send a set at object\['seen'\]; convert it to one of"
    with pytest.raises(tfs.LaunchError, match=message):
        tfs.launch(lambda: {"seen": {1}}, workers=1)


def test_a_module_that_is_missing_there_is_an_error_of_the_worker(tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def work():\n    return 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import only_here

    assert tfs.launch(only_here.work, workers=1) == [7]
    (tmp_path / "only_here.py").unlink()
    with pytest.raises(
        tfs.LaunchError, match=r"^worker 0 failed: ModuleNotFoundError: No module named 'only_here'"
    ):
        tfs.launch(only_here.work, workers=1)


def test_processes_that_take_too_long_are_ended_and_named(tmp_path):
    start = time.monotonic()
    with pytest.raises(
        tfs.LaunchError, match=r"within timeout=1\.5 s: worker 0 ended by tfs-run with SIGTERM"
    ) as caught:
        tfs.launch(note_and_hold, args=[tmp_path, 1], workers=1, timeout=1.5)
    assert time.monotonic() - start < 5
    assert caught.value.task is None
    assert all(map(gone, pids(tmp_path)))


def test_other_children_of_the_caller_live_on():
    with subprocess.Popen(["sleep", "60"]) as other:
        before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
        found = []
        thread = threading.Thread(target=lambda: found.extend(tfs.launch(task, workers=2)))
        thread.start()
        thread.join(30)
        assert found == ["worker 0", "worker 1"]
        assert [
            signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
        ] == before
        assert other.poll() is None
        other.kill()


# A script, which is __main__: its functions and their variables are sent by value.
SCRIPT = """
import os, pathlib, sys, time
import tf_strategies as tfs
folder = pathlib.Path(os.environ["DIR"])
def note():
    (folder / str(os.getpid())).touch()
def work():
    note()
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted in", os.getpid(), flush=True)
        raise
try:
    tfs.launch(work, workers=2)
except KeyboardInterrupt:
    print("caller interrupted", len(list(pathlib.Path(os.environ["TMPDIR"]).iterdir())), flush=True)
    sys.exit(9)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_outlives_a_caller_that_is_interrupted_or_killed(number, launcher, tmp_path):
    for name in ("pids", "temporary"):
        (tmp_path / name).mkdir()
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {"DIR": str(tmp_path / "pids"), "TMPDIR": str(tmp_path / "temporary")}
    caller = launcher.group.start_python("caller", str(script), env=environment)
    wait_until(lambda: len(pids(tmp_path / "pids")) == 2, 20, "two workers")
    caller.signal(number)
    status = caller.wait(10)
    if number == signal.SIGINT:
        assert status == 9
        assert all(f"interrupted in {pid}" in caller.log() for pid in pids(tmp_path / "pids"))
        assert "caller interrupted 0" in caller.log()
    wait_until(lambda: all(map(gone, pids(tmp_path / "pids"))), 5, "the end of the workers")
    wait_until(lambda: not list((tmp_path / "temporary").iterdir()), 5, "the removal of the files")


def test_a_second_interrupt_kills(launcher, tmp_path):
    for name in ("pids", "taken"):
        (tmp_path / name).mkdir()
    script = tmp_path / "script.py"
    going_on = """import signal
    taken = folder.parent / "taken" / str(os.getpid())
    signal.signal(signal.SIGINT, lambda number, frame: taken.touch())
    note()"""
    script.write_text(SCRIPT.replace("    note()\n", f"    {going_on}\n", 1))
    environment = {"DIR": str(tmp_path / "pids"), "TMPDIR": str(tmp_path)}
    caller = launcher.group.start_python("caller", str(script), env=environment)
    wait_until(lambda: len(pids(tmp_path / "pids")) == 2, 20, "two workers")
    caller.signal(signal.SIGINT)
    wait_until(lambda: len(pids(tmp_path / "taken")) == 2, 4, "the first interrupt in both workers")
    caller.signal(signal.SIGINT)
    assert caller.wait(4) == 9  # less than the grace after the first
    assert all(map(gone, pids(tmp_path / "pids")))
