"""Tests how tfs-run ends with real processes: exit status, signals, and that nothing is left running."""

from __future__ import annotations

import re
import signal
import sys

import pytest

from tests.cluster.launcher.launcher import PRELUDE, gone
from tests.support.processes import wait_until

pytestmark = [pytest.mark.any_line, pytest.mark.quick, pytest.mark.waits]


@pytest.mark.parametrize(
    ("code", "status"), [("sys.exit(7)", 7), ("os.kill(os.getpid(), signal.SIGKILL)", 137)]
)
def test_one_that_fails_ends_the_others_and_gives_its_status(launcher, code, status):
    code = f"note()\nif index == 1:\n    wait_for_notes('worker0', 'worker2')\n    {code}\nhold()"
    found, log = launcher.run("--workers", "3", "--survivor-wait", "0.3", "--grace", "5", code=code)
    assert found == status
    assert re.search(r"tfs-run: worker 1 .*; the other 2 will be ended in 0.3 s", log)
    assert re.search(r"tfs-run: worker 0 \(127.0.0.1:\d+\) ended by tfs-run with SIGTERM", log)
    assert all(gone(entry["pid"]) for entry in launcher.seen().values())


def test_survivors_may_end_with_their_own_message(launcher):
    code = """
if index == 1:
    sys.exit(9)
while not (folder / "go").exists():
    time.sleep(0.02)
print(f"worker {index} saw the loss")
sys.exit(3)
"""
    process = launcher.start("--workers", "3", "--survivor-wait", "20", code=code)
    process.wait_for_text("worker 1 ended with status 9", 10)
    (launcher.folder / "go").touch()
    assert process.wait(10) == 9
    assert "worker 0 saw the loss" in process.log()
    assert "worker 2 saw the loss" in process.log()
    assert "worker 2 | " in process.log()


MIN_WORKERS = ("--workers", "4", "--min-workers", "2", "--survivor-wait", "0.1")
ONE_IS_LOST = """
note()
if index == 1:
    sys.exit(9)
while not (folder / "go").exists():
    time.sleep(0.02)
"""


def test_the_others_run_on_while_there_are_min_workers(launcher):
    process = launcher.start(*MIN_WORKERS, code=ONE_IS_LOST)
    process.wait_for_text(r"worker 1 ended with status 9 after .* s; 3 of 4 go on \(--min-workers 2\)", 10)
    (launcher.folder / "go").touch()
    assert process.wait(10) == 0


def test_fewer_than_min_workers_are_ended(launcher):
    process = launcher.start(*MIN_WORKERS, code=ONE_IS_LOST + "if index == 3: hold()\nsys.exit(5)")
    process.wait_for_text("3 of 4 go on", 10)
    (launcher.folder / "go").touch()
    assert process.wait(10) == 5
    assert "2 of 4 go on" in process.log()
    assert "ended by tfs-run with SIGTERM" in process.log()


def test_one_that_ignores_the_signal_is_killed_after_the_grace(launcher):
    code = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
note()
if index == 1:
    wait_for_notes("worker0")
    sys.exit(1)
hold()
"""
    status, log = launcher.run("--workers", "2", "--survivor-wait", "0.3", "--grace", "0.3", code=code)
    assert status == 1
    assert "worker 0 (127.0.0.1:" in log
    assert "ended by tfs-run with SIGKILL" in log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_every_process(launcher, number):
    code = f"""
def on_signal(number, frame):
    print("got", number, flush=True)
    sys.exit(0)
signal.signal({int(number)}, on_signal)
note()
hold()
"""
    process = launcher.start("--workers", "3", code=code)
    wait_until(lambda: len(launcher.seen()) == 3, 20, "three workers")
    process.signal(number)
    assert process.wait(10) == 128 + number
    for index in range(3):
        assert f"worker {index} | got {int(number)}" in process.log()


def test_a_second_interrupt_kills(launcher):
    process = launcher.start(
        "--workers", "1", "--grace", "60", code="signal.signal(signal.SIGINT, signal.SIG_IGN)\nnote()\nhold()"
    )
    wait_until(lambda: len(launcher.seen()) == 1, 20, "the worker")
    process.signal(signal.SIGINT)
    process.signal(signal.SIGTERM)
    assert process.wait(10) in (130, 143)
    assert gone(launcher.seen()["worker0"]["pid"])


GRANDCHILDREN = """
mine = subprocess.Popen(["sleep", "61"])
escaped = subprocess.Popen(["sleep", "62"], start_new_session=True)
note(children=[mine.pid, escaped.pid])
"""


@pytest.mark.parametrize("ending", ["", "sys.exit(1)", "hold()"])
def test_no_grandchild_is_left_running(launcher, ending):
    process = launcher.start("--workers", "2", "--grace", "0.2", code=GRANDCHILDREN + ending)
    wait_until(lambda: len(launcher.seen()) == 2, 20, "both workers")
    if ending == "hold()":
        process.signal(signal.SIGTERM)
    process.wait(15)
    children = [pid for entry in launcher.seen().values() for pid in entry["children"]]
    assert len(children) == 4
    assert all(gone(pid) for pid in children)


def test_the_processes_die_when_the_launcher_is_killed(launcher):
    process = launcher.start("--workers", "2", code="note()\nhold()")
    wait_until(lambda: len(launcher.seen()) == 2, 20, "both workers")
    process.signal(signal.SIGKILL)
    process.wait(5)
    wait_until(
        lambda: all(gone(entry["pid"]) for entry in launcher.seen().values()), 5, "the end of the workers"
    )


def test_servers_are_ended_after_the_workers(launcher):
    status, log = launcher.run(
        "--workers", "1", "--ps", "2", "--grace", "0.2", code="if role == 'ps': hold()"
    )
    assert status == 0
    assert len(re.findall(r"ps \d .* ended by tfs-run with SIGTERM", log)) == 2


def test_a_failing_server_is_a_failure(launcher):
    code = "if role == 'ps': sys.exit(5)\nhold()"
    assert launcher.run("--workers", "1", "--ps", "1", "--survivor-wait", "0.1", code=code)[0] == 5


def test_closing_its_output_ends_all(launcher):
    script = launcher.folder / "talks.py"
    script.write_text(
        PRELUDE
        + "note()\nwait_for_notes('worker0', 'worker1')\nwhile True: print('again', flush=True); time.sleep(0.01)"
    )
    line = 'set -o pipefail; "$0" -m tf_strategies.launcher.run --workers 2 --grace 1 "$1" 2>/dev/null | head -n 3'
    process = launcher.group.start(
        "shell", ["bash", "-c", line, sys.executable, str(script)], env={"DIR": str(launcher.folder)}
    )
    assert process.wait(15) == 143
    assert all(gone(entry["pid"]) for entry in launcher.seen().values())


def test_closing_its_output_leaves_the_processes_their_grace(launcher):
    script = launcher.folder / "saves.py"
    script.write_text(
        PRELUDE
        + """
def on_signal(number, frame):
    if index == 0:
        os.kill(os.getppid(), signal.SIGTERM)
    for step in range(10):
        print("saving", step, flush=True)
        time.sleep(0.02)
    note(saved=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, on_signal)
note(saved=False)
wait_for_notes("worker0", "worker1")
while True: print("again", flush=True); time.sleep(0.01)
"""
    )
    line = '"$0" -m tf_strategies.launcher.run --workers 2 --grace 20 "$1" 2>/dev/null | head -n 3; echo "${PIPESTATUS[0]}"'
    process = launcher.group.start(
        "shell", ["bash", "-c", line, sys.executable, str(script)], env={"DIR": str(launcher.folder)}
    )
    process.wait(15)
    assert process.log().endswith("143\n")
    assert [launcher.seen()[name]["saved"] for name in ("worker0", "worker1")] == [True, True]


def test_one_that_is_lost_starts_again_while_the_others_run(launcher):
    code = """
if index == 1 and "TF_STRATEGIES_RESTARTED" not in os.environ:
    note()
    sys.exit(9)
if index == 1:
    (folder / "again").touch()
while not (folder / "again").exists():
    time.sleep(0.02)
"""
    status, log = launcher.run("--workers", "3", "--min-workers", "2", "--restarts", "1", code=code)
    assert status == 0
    assert re.search(
        r"worker 1 ended with status 9 after .* s; 2 of 3 go on \(--min-workers 2\), and it starts again in 1 s "
        r"\(restarts left: 0\)",
        log,
    )
    assert len(re.findall(r"worker 1 \(\S+\) ended with status 0", log)) == 1


def test_a_server_that_is_lost_starts_again_while_workers_run(launcher):
    code = """
if role == "ps" and "TF_STRATEGIES_RESTARTED" not in os.environ:
    sys.exit(9)
if role == "ps":
    (folder / "again").touch()
while not (folder / "again").exists():
    time.sleep(0.02)
"""
    options = ("--workers", "1", "--ps", "1", "--min-workers", "1", "--restarts", "1")
    status, log = launcher.run(*options, code=code)
    assert status == 0, log
    assert re.search(
        r"ps 0 ended with status 9 after .* s; the workers may wait for it \(--min-workers 1\), and it starts again in 1 s",
        log,
    )


def test_a_job_that_outlives_workers_has_an_arbiter(launcher):
    code = """
from tf_strategies.arbiter.asking import Arbiter
from tf_strategies.arbiter.votes import Vote
from tf_strategies.secret import read_secret
arbiter = Arbiter(os.environ["TF_STRATEGIES_ARBITER"], read_secret(), None, 10.0)
print(arbiter.objection(Vote(1, frozenset({index}), (f"worker {index}",))) or "goes on")
"""
    status, log = launcher.run("--workers", "2", "--min-workers", "1", code=code)
    assert status == 0, log
    assert len(re.findall(r"^worker \d \| goes on$", log, re.M)) == 1
    assert (
        len(re.findall(r"\| the arbiter at \S+ refuses it: the other half goes on, worker \d; start", log))
        == 1
    )
    code = "assert 'TF_STRATEGIES_ARBITER' not in os.environ"
    assert launcher.run("--workers", "2", code=code)[0] == 0
    named = ("--workers", "2", "--min-workers", "1", "--env", "TF_STRATEGIES_ARBITER=10.0.0.9:1")
    code = "assert os.environ['TF_STRATEGIES_ARBITER'] == '10.0.0.9:1'"
    assert launcher.run(*named, code=code)[0] == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--workers", "2", "--arbiter", "127.0.0.1:2222"), "--arbiter is for jobs that outlive workers"),
        (
            ("--workers", "2", "--min-workers", "1", "--arbiter", "0.0.0.0:2222"),
            "is not host:port: it must name one host",
        ),
        (
            ("--hosts", "a:1,b:1", "--arbiter", "10.0.0.9:2222"),
            "start tfs-arbiter by itself, and name it with --env",
        ),
        (
            ("--min-workers", "1", "--arbiter", "127.0.0.1:1", "--env", "TF_STRATEGIES_ARBITER=127.0.0.1:2"),
            "--arbiter and --env TF_STRATEGIES_ARBITER exclude each other",
        ),
    ],
)
def test_an_arbiter_that_would_not_be_asked_is_refused(launcher, options, error):
    status, log = launcher.run(*options, "--dry-run", code="")
    assert (status, error in log) == (2, True), log


def test_one_starts_again_although_a_descendant_of_it_still_runs(launcher):
    code = """
runs = len(list(folder.glob("run*")))
if index == 1:
    (folder / f"run{runs}").touch()
    if runs < 2:
        subprocess.Popen(["sleep", "61"], start_new_session=True)
        sys.exit(9)
while not (folder / "run2").exists():
    time.sleep(0.02)
"""
    status, log = launcher.run("--workers", "2", "--min-workers", "1", "--restarts", "2", code=code)
    assert status == 0, log
    assert "restarts left: 0" in log


def test_one_that_fails_when_the_others_have_ended_does_not_start_again(launcher):
    code = """
if index == 0:
    note()
    sys.exit(0)
wait_for_notes("worker0")
pid = json.loads((folder / "worker0.json").read_text())["pid"]
end = time.monotonic() + 20
while pathlib.Path(f"/proc/{pid}").exists():  # until tfs-run has noticed its end
    assert time.monotonic() < end
    time.sleep(0.02)
sys.exit(7)
"""
    status, log = launcher.run("--workers", "2", "--min-workers", "1", "--restarts", "3", code=code)
    assert status == 0
    assert "starts again" not in log
    assert "all processes start again" not in log
