"""Tests tfs-run over ssh, with real sshds on two hosts that are network namespaces."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from tests.cluster.launcher.launcher import PRELUDE, RUN, gone
from tests.support.processes import REPOSITORY, Process, ProcessGroup, wait_until
from tests.support.ssh_hosts import SshHosts, missing

pytestmark = [pytest.mark.any_line, pytest.mark.quick, pytest.mark.waits]
FIRST, SECOND = SshHosts.addresses
BOTH = ("--hosts", f"{FIRST}:2,root@{SECOND}:1")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    reason = missing()
    if reason:
        pytest.skip(reason)
    with SshHosts(tmp_path_factory.mktemp("ssh")) as made:
        yield made


class Launch:
    """Starts tfs-run on the first host."""

    def __init__(self, hosts: SshHosts, group: ProcessGroup, folder: Path) -> None:
        self._hosts, self._group, self.folder = hosts, group, folder

    def start(self, *arguments: str, code: str, script: tuple[str, ...] = (), **env: str) -> Process:
        path = self.folder / "script.py"
        path.write_text(PRELUDE + code)
        command = [sys.executable, *RUN, "--ssh", self._hosts.ssh, *arguments, str(path), *script]
        environ = {"DIR": str(self.folder), "PYTHONPATH": str(REPOSITORY), **env}
        return self._group.start("tfs-run", self._hosts.run(0, *command), env=environ, cwd=self.folder)

    def seen(self) -> dict[str, dict]:
        """Returns what the processes wrote with `note`, by role and index."""
        return {path.stem: json.loads(path.read_text()) for path in self.folder.glob("*.json")}

    def wait_for(self, *names: str) -> None:
        for name in names:
            wait_until((self.folder / f"{name}.json").exists, 30, f"a note of {name}")


@pytest.fixture
def launch(hosts: SshHosts, tmp_path: Path) -> Iterator[Launch]:
    with ProcessGroup(tmp_path) as group:
        yield Launch(hosts, group, tmp_path)
        group.print_logs()


NOTES = """
def command(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:  # it has ended
        return ""
secret = pathlib.Path(os.environ["TF_STRATEGIES_SECRET_FILE"])
note(
    config=config, argv=sys.argv[1:], cwd=os.getcwd(), secret=secret.read_text(), mode=oct(secret.stat().st_mode),
    here=[name for name in os.listdir("/sys/class/net") if name.startswith("tfs")], env=dict(os.environ),
    commands=[command(pid) for pid in os.listdir("/proc") if pid.isdigit()],
)
print(f"hello from {role} {index}", flush=True)
"""


def test_processes_start_on_their_hosts_with_folder_environment_and_secret(launch: Launch) -> None:
    arguments = (
        *BOTH,
        "--ps",
        "1",
        "--env",
        "DIR",
        "--env",
        "MINE=a b'c",
        "--log-dir",
        "logs",
        "--grace",
        "30",
    )
    process = launch.start(*arguments, code=NOTES, script=("--name", "x y"), TFS_OWN="1", HIDDEN="1")
    assert process.wait(60) == 0
    seen = launch.seen()
    assert {name: entry["here"] for name, entry in seen.items()} == {
        "worker0": ["tfs0"],
        "worker1": ["tfs0"],
        "worker2": ["tfs1"],
        "ps0": ["tfs0"],
    }
    cluster = seen["worker0"]["config"]["cluster"]
    assert [each.rpartition(":")[0] for each in cluster["worker"]] == [FIRST, FIRST, SECOND]
    assert len({each for listed in cluster.values() for each in listed}) == 4
    secrets = {entry["secret"].strip() for entry in seen.values()}
    assert len(secrets) == 1
    assert re.fullmatch("[0-9a-f]{64}", secrets.pop())
    for entry in seen.values():
        assert entry["config"]["cluster"] == cluster
        assert (entry["argv"], entry["cwd"]) == (["--name", "x y"], str(launch.folder))
        assert entry["mode"] == "0o100600"
        assert (entry["env"]["MINE"], entry["env"]["TFS_OWN"]) == ("a b'c", "1")
        assert "HIDDEN" not in entry["env"]
        assert not any(entry["secret"].strip() in command for command in entry["commands"])
        assert not Path(entry["env"]["TF_STRATEGIES_SECRET_FILE"]).exists()
    log = process.log()
    assert "tfs-run: starting 4 processes on 2 hosts over ssh" in log
    assert re.search(r"^worker 2 \| hello from worker 2$", log, re.M)
    assert re.search(rf"^tfs-run: worker 2 \({SECOND}:\d+\) ended with status 0", log, re.M)
    assert re.search(rf"^tfs-run: host root@{SECOND} ended with status 0", log, re.M)
    assert "hello from worker 2" in (launch.folder / "logs" / "worker-2.log").read_text()


def test_a_failure_on_one_host_ends_the_others_and_gives_its_status(launch: Launch) -> None:
    code = "note()\nif index == 2:\n    wait_for_notes('worker0', 'worker1')\n    sys.exit(7)\nhold()"
    process = launch.start(*BOTH, "--env", "DIR", "--survivor-wait", "0.2", "--grace", "5", code=code)
    assert process.wait(60) == 7
    assert re.search(rf"tfs-run: worker 2 \({SECOND}:\d+\) ended with status 7", process.log())
    assert "worker 0" in process.log() and "ended by tfs-run with SIGTERM" in process.log()
    assert all(gone(entry["pid"]) for entry in launch.seen().values())


def test_a_server_outlasts_the_workers_of_its_host_while_others_train(launch: Launch) -> None:
    code = """
note()
if role == "worker" and index == 2:
    wait_for_notes("worker0", "worker1")
    time.sleep(1.5)  # longer than --grace
    (folder / "trained").touch()
while role == "ps" and not (folder / "trained").exists():
    time.sleep(0.02)
"""
    process = launch.start(*BOTH, "--ps", "1", "--env", "DIR", "--grace", "0.3", code=code)
    assert process.wait(60) == 0
    assert re.search(rf"^tfs-run: ps 0 \({FIRST}:\d+\) ended with status 0", process.log(), re.M)


def test_after_a_failure_all_hosts_start_again(launch: Launch) -> None:
    code = """
marker = folder / f"start {role}{index}"
if not marker.exists():
    marker.touch()
    sys.exit(3)
note()
"""
    process = launch.start(*BOTH, "--env", "DIR", "--restarts", "1", "--survivor-wait", "5", code=code)
    assert process.wait(60) == 0
    assert "tfs-run: restart 1 of 1: all processes start again" in process.log()
    assert set(launch.seen()) == {"worker0", "worker1", "worker2"}


JOINS = """
secret = pathlib.Path(os.environ["TF_STRATEGIES_SECRET_FILE"]).read_text()
run = len(list(folder.glob(f"{role}{index}*.json")))
index = f"{index}-{run}"
here = [name for name in os.listdir("/sys/class/net") if name.startswith("tfs")]
note(here=here, config=config, secret=secret, again=os.environ.get("TF_STRATEGIES_RESTARTED", ""))
print("hello", flush=True)
while not (folder / "go").exists():
    if (folder / f"lose-{index}").exists():
        sys.exit(9)
    time.sleep(0.02)
"""


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_worker_joins_on_a_host_that_appears_and_starts_again_there(launch: Launch) -> None:
    hosts = launch.folder / "hosts"
    hosts.write_text(f"{FIRST}:1\n")
    options = ("--workers", "1", "--max-workers", "2", "--restarts", "2", "--hosts-from", f"@{hosts}")
    process = launch.start(*options, "--env", "DIR", code=JOINS)
    launch.wait_for("worker0-0")
    hosts.write_text(f"{FIRST}:1\nroot@{SECOND}:1\n")
    launch.wait_for("worker1-0")
    (launch.folder / "lose-1-0").touch()
    launch.wait_for("worker1-1")
    agent = parent(launch.seen()["worker1-1"]["pid"])
    os.kill(parent(agent), signal.SIGKILL)  # sshd's process of the connection
    launch.wait_for("worker1-2")
    (launch.folder / "go").touch()
    assert process.wait(60) == 0
    seen = launch.seen()
    names = ("0-0", "1-0", "1-1", "1-2")
    assert [seen[f"worker{name}"]["here"] for name in names] == [["tfs0"], *[["tfs1"]] * 3]
    assert [seen[f"worker{name}"]["again"] for name in names] == ["", "", "1", "1"]
    assert len({each["secret"] for each in seen.values()}) == 1
    workers = seen["worker1-0"]["config"]["cluster"]["worker"]
    assert [each.rpartition(":")[0] for each in workers] == [FIRST, SECOND]
    assert seen["worker1-0"]["config"] == seen["worker1-1"]["config"] == seen["worker1-2"]["config"]
    assert seen["worker0-0"]["config"]["cluster"]["worker"] == workers[:1]
    log = process.log()
    assert re.search(rf"^tfs-run: worker 1 \({SECOND}:\d+\) starts, and joins the others$", log, re.M)
    assert re.search(r"worker 1 ended with status 9 .* 1 of 2 go on .* starts again in 1 s", log)
    # A host whose connection fails is asked before it runs workers again.
    assert re.search(r"worker 1 ended with status 255 .* does not start again, because it has no place", log)
    assert re.search(r"worker 1 starts again, because it has a place again \(restarts left: 0\)", log)
    assert re.search(r"^worker 1 \| hello$", log, re.M)
    assert log.count("tfs-run: starting") == 1


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_nothing_outlives_the_launcher(number: signal.Signals, status: int, launch: Launch) -> None:
    process = launch.start(*BOTH, "--env", "DIR", "--grace", "3", code="note()\nhold()")
    launch.wait_for("worker0", "worker1", "worker2")
    process.signal(number)
    assert process.wait(20) == status
    pids = [entry["pid"] for entry in launch.seen().values()]
    wait_until(lambda: all(gone(pid) for pid in pids), 20, "the end of all processes")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--hosts", f"{FIRST}:1,10.213.7.9:1"],
            r"host 10\.213\.7\.9 cannot run processes \(status 255\): ssh: .*; try: ",
        ),
        ([*BOTH, "--python", "/no/python"], r"cannot run processes \(status 127\): .*no/python"),
        ([*BOTH, "--workers", "3"], "--hosts with numbers of workers needs no --workers"),
        (["--hosts", f"{FIRST}:1,{SECOND}"], f"--hosts has '{SECOND}' without a number of workers"),
        (["--hosts", f"{FIRST}:1,a@{FIRST}:1"], "must name 10.213.7.1 once"),
        (["--hosts", f"{FIRST}:0"], "with at least one worker"),
        ([*BOTH, "--env", "NOT_SET"], "--env NOT_SET: the variable is not set"),
        ([*BOTH, "--tls"], "--tls makes certificates for one machine"),
    ],
)
def test_what_cannot_start_is_an_error_of_one_line_before_anything_starts(
    arguments: list[str], message: str, launch: Launch
) -> None:
    process = launch.start(*arguments, code="note()")
    assert process.wait(60) == 2
    assert re.search(message, process.log()), process.log()
    assert process.log().startswith("tfs-run: error: ")
    assert process.log().count("\n") == 1
    assert launch.seen() == {}


def test_a_folder_that_another_host_lacks_is_named(tmp_path: Path) -> None:
    request = json.dumps({"cwd": str(tmp_path / "missing"), "ports": 1}) + "\n"
    command = [sys.executable, "-m", "tf_strategies.launcher.agent"]
    done = subprocess.run(command, input=request, capture_output=True, text=True, timeout=60, cwd=REPOSITORY)
    assert done.returncode == 2
    assert "the folder of tfs-run is not on this host: " in done.stderr
    assert f"{tmp_path}/missing" in done.stderr
