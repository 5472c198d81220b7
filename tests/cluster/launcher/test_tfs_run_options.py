"""Tests the options of tfs-run for logs, restarts, GPUs, and for looking before starting."""

from __future__ import annotations

import json
import re
import shlex
import signal

import pytest

pytestmark = [pytest.mark.any_line, pytest.mark.quick, pytest.mark.waits]
FAILS_TWICE = """
with (folder / "starts").open("a") as starts:
    starts.write(f"{role}{index}\\n")
def count():
    return (folder / "starts").read_text().count(f"{role}{index}\\n")
print(f"start {count()} at {config['cluster']['worker'][index]}", flush=True)
if index == 1 and count() < 3:
    sys.exit(5)
if count() < 3:
    hold()
"""
QUICKLY = ("--survivor-wait", "0.1", "--grace", "5")


def test_each_process_has_a_log_file_of_its_own(launcher):
    logs = launcher.folder / "logs" / "new"
    code = "print(f'out of {role}{index}', flush=True)\nprint('err', file=sys.stderr)\nsys.stdout.write('no end')"
    for times in (1, 2):
        status, log = launcher.run("--workers", "2", "--log-dir", str(logs), code=code)
        assert status == 0
        assert "worker 1 | out of worker1" in log
        assert {path.name for path in logs.iterdir()} == {"worker-0.log", "worker-1.log"}
        for index in (0, 1):
            lines = (logs / f"worker-{index}.log").read_text().splitlines()
            assert len(lines) == 4 * times  # a log is appended to
            assert re.fullmatch(r"tfs-run: started at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d{4}", lines[-4])
            assert sorted(lines[-3:]) == ["err", "no end", f"out of worker{index}"]


def test_a_log_file_that_cannot_be_opened_is_an_error_before_the_start(launcher):
    (launcher.folder / "file").touch()
    status, log = launcher.run("--log-dir", str(launcher.folder / "file"), code="note()")
    assert status == 2
    assert re.search(r"^tfs-run: error: --log-dir \S+file: .*File exists", log, re.M)
    assert launcher.seen() == {}


@pytest.mark.parametrize(("shown", "prefix"), [("1", "worker 0 | "), ("ps0,0", "chief 0  | |ps 0     | ")])
def test_a_filter_shows_the_lines_of_the_named_processes_alone(launcher, shown, prefix):
    roles = ("--chief",) if "ps" in shown else ()
    servers = ("--ps", "1", "--grace", "30") if "ps" in shown else ()
    status, log = launcher.run(
        "--workers", "2", *roles, *servers, "--filter", shown, code="print(role, index)"
    )
    assert status == 0
    named = {"1": "worker 1 | worker 1", "ps0,0": "chief 0  | chief 0,ps 0     | ps 0"}[shown].split(",")
    assert sorted(line for line in log.splitlines() if not line.startswith("tfs-run: ")) == sorted(named)


def test_a_hidden_process_that_fails_shows_its_last_lines(launcher):
    code = """
if index == 1:
    print("\\n".join(f"line {n}" for n in range(100)), flush=True)
    sys.exit("the reason")
print("hidden")
hold()
"""
    status, log = launcher.run("--workers", "2", "--filter", "0", *QUICKLY, code=code)
    assert status == 1
    assert "tfs-run: worker 1 wrote: the reason" in log
    assert "tfs-run: worker 1 wrote: line 99" in log
    assert "wrote: line 0" not in log
    logs = launcher.folder / "logs"
    status, log = launcher.run("--workers", "2", "--filter", "0", "--log-dir", str(logs), *QUICKLY, code=code)
    assert status == 1
    assert f"tfs-run: the output of worker 1 is in {logs}/worker-1.log" in log
    assert "the reason" in (logs / "worker-1.log").read_text()


def test_after_a_failure_all_start_again_with_the_same_addresses(launcher):
    status, log = launcher.run("--workers", "2", "--restarts", "2", *QUICKLY, code=FAILS_TWICE)
    assert status == 0
    assert re.findall(r"tfs-run: (restart .*)", log) == [
        "restart 1 of 2: all processes start again",
        "restart 2 of 2: all processes start again",
    ]
    for index in (0, 1):
        starts = re.findall(rf"worker {index} \| start (\d) at (\S+)", log)
        assert [number for number, _ in starts] == ["1", "2", "3"]
        assert len({address for _, address in starts}) == 1


def test_the_last_failure_is_the_status(launcher):
    status, log = launcher.run("--workers", "2", "--restarts", "1", *QUICKLY, code=FAILS_TWICE)
    assert status == 5
    assert log.count("all processes start again") == 1


def test_an_interrupt_starts_nothing_again(launcher):
    process = launcher.start("--workers", "2", "--restarts", "5", code="note()\nhold()")
    process.wait_for_text("starting 2 processes", 10)
    launcher.wait_for("worker0", "worker1")
    process.signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert "start again" not in process.log()


def test_a_dry_run_prints_commands_that_can_be_typed_and_starts_nothing(launcher):
    places = ("--hosts", "a.example,b.example", "--port-base", "2000", "--workers", "2", "--ps", "1")
    status, log = launcher.run(*places, "--dry-run", code="note()", script_arguments=["--name", "a b"])
    assert status == 0
    assert launcher.seen() == {}
    lines = log.splitlines()
    assert lines[::2] == ["# worker 0 on a.example", "# worker 1 on b.example", "# ps 0 on a.example"]
    for line, task in zip(lines[1::2], (("worker", 0), ("worker", 1), ("ps", 0))):
        variable, *command = shlex.split(line)
        config = json.loads(variable.removeprefix("TF_CONFIG="))
        assert (config["task"]["type"], config["task"]["index"]) == task
        assert config["cluster"]["worker"] == ["a.example:2000", "b.example:2001"]
        assert command[1:] == [str(launcher.folder / "script.py"), "--name", "a b"]


@pytest.mark.parametrize(
    ("given", "visible", "expected"),
    [
        ((), "3,4,5", {"worker0": "3", "worker1": "4", "worker2": "5"}),
        (("--chief",), "3,4", {"chief0": "3", "worker0": "4"}),
        (("--gpus-per-worker", "2"), "3,4,5,6", {"worker0": "3,4", "worker1": "5,6"}),
        ((), "", {"worker0": ""}),
    ],
)
def test_auto_starts_a_worker_for_each_gpu(launcher, given, visible, expected):
    code = "note(gpus=os.environ['CUDA_VISIBLE_DEVICES'])"
    status, _ = launcher.run("--workers", "auto", *given, code=code, env={"CUDA_VISIBLE_DEVICES": visible})
    assert status == 0
    assert {name: entry["gpus"] for name, entry in launcher.seen().items()} == expected


@pytest.mark.parametrize(
    ("workers", "share", "remark"),
    [
        (2, ["6,7", "8,9"], "2 GPUs for each worker"),
        (4, ["6", "7", "8", "9"], "1 GPU for each worker"),
        (5, [""] * 5, "no GPUs for each worker"),
    ],
)
def test_workers_share_the_gpus_by_default(launcher, workers, share, remark):
    code = "note(gpus=os.environ['CUDA_VISIBLE_DEVICES'])"
    env = {"CUDA_VISIBLE_DEVICES": "6,7,8,9"}
    status, log = launcher.run("--workers", str(workers), code=code, env=env)
    assert status == 0
    assert [launcher.seen()[f"worker{index}"]["gpus"] for index in range(workers)] == share
    assert f"{remark} (change with --gpus-per-worker)" in log


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--filter", "2", "--workers", "2"], "--filter has '2'; the processes are 0, 1, worker0, worker1"),
        (["--workers", "auto", "--hosts", "a", "--port-base", "1"], "auto counts the GPUs of this host"),
        (["--restarts", "-1"], "'-1' is not a count"),
    ],
)
def test_wrong_options_are_refused_in_one_line(launcher, arguments, message):
    status, log = launcher.run(*arguments, code="note()")
    assert status == 2
    assert message in log
    assert log.count("\n") == 1
    assert launcher.seen() == {}
