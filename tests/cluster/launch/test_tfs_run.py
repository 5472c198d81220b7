"""tfs-run with real processes: output, exit status, signals, and that nothing is left running."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.support.processes import ProcessGroup, wait_until

RUN = ("-m", "tf_strategies.launch.run")
pytestmark = [pytest.mark.any_line, pytest.mark.quick, pytest.mark.waits]


class Launcher:
    """Writes small scripts and starts tfs-run on them."""

    def __init__(self, group: ProcessGroup, folder: Path) -> None:
        self.group, self.folder = group, folder

    def start(self, *arguments: str, code: str, env=None, script_arguments=()):
        script = self.folder / "script.py"
        script.write_text(PRELUDE + code)
        return self.group.start_python(
            "tfs-run",
            *RUN,
            *arguments,
            str(script),
            *script_arguments,
            env={"DIR": str(self.folder), **(env or {})},
        )

    def run(self, *arguments: str, code: str = "", timeout: float = 30, **more) -> tuple[int, str]:
        process = self.start(*arguments, code=code, **more)
        return process.wait(timeout), process.log()

    def seen(self) -> dict[str, dict]:
        """What the processes wrote with `note`, by role and index."""
        return {path.stem: json.loads(path.read_text()) for path in self.folder.glob("*.json")}


PRELUDE = """
import json, os, pathlib, signal, subprocess, sys, time
config = json.loads(os.environ["TF_CONFIG"])
role, index = config["task"]["type"], config["task"]["index"]
folder = pathlib.Path(os.environ["DIR"])
def note(**values):
    (folder / f".{role}{index}").write_text(json.dumps({"pid": os.getpid(), **values}))
    (folder / f".{role}{index}").rename(folder / f"{role}{index}.json")
def wait_for_notes(*names):
    end = time.monotonic() + 20
    while not all((folder / f"{name}.json").exists() for name in names):
        assert time.monotonic() < end, f"no notes of {names}"
        time.sleep(0.02)
def hold():
    time.sleep(60)
"""


@pytest.fixture
def launcher(tmp_path):
    with ProcessGroup(tmp_path) as group:
        yield Launcher(group, tmp_path)
        group.print_logs()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_every_role_gets_its_tf_config(launcher):
    roles = ("--workers", "2", "--chief", "--ps", "1", "--evaluator")
    status, _ = launcher.run(*roles, "--grace", "30", code="note(config=config)")
    assert status == 0
    seen = launcher.seen()
    assert set(seen) == {"chief0", "worker0", "worker1", "ps0", "evaluator0"}
    clusters = [entry["config"]["cluster"] for entry in seen.values()]
    assert all(cluster == clusters[0] for cluster in clusters)
    assert {role: len(addresses) for role, addresses in clusters[0].items()} == {
        "chief": 1,
        "worker": 2,
        "ps": 1,
    }
    addresses = [address for listed in clusters[0].values() for address in listed]
    assert len(set(addresses)) == 4
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+", address) for address in addresses)


def test_the_ports_can_be_listened_on_by_grpc(launcher):
    code = """
import grpc
from concurrent import futures
server = grpc.server(futures.ThreadPoolExecutor(1), options=[("grpc.so_reuseport", 0)])
server.add_insecure_port(config["cluster"]["worker"][index])
server.start()
"""
    assert launcher.run("--workers", "2", code=code)[0] == 0


def test_lines_are_prefixed_and_whole(launcher):
    code = """
sys.stdout.write(f"{role}{index} " + "x" * 3000 + "\\n")
for line in range(200):
    print(f"line {line} of {role}{index}", flush=line % 3 == 0)
print("to stderr", file=sys.stderr)
sys.stdout.write("no end")
"""
    status, log = launcher.run("--workers", "3", code=code)
    assert status == 0
    for index in range(3):
        mine = [line for line in log.splitlines() if line.startswith(f"worker {index} | ")]
        texts = [line.split(" | ", 1)[1] for line in mine]
        assert [text for text in texts if text.startswith("line")] == [
            f"line {n} of worker{index}" for n in range(200)
        ]
        assert f"worker{index} " + "x" * 3000 in texts
        assert "to stderr" in texts
        assert "no end" in texts
    assert all(re.match(r"worker \d \| |tfs-run: ", line) for line in log.splitlines())


def test_arguments_reach_the_script_as_they_are(launcher):
    arguments = ("--workers", "-m", "a b", "", "--", "--hosts=x")
    launcher.run("--workers", "1", code="note(argv=sys.argv[1:])", script_arguments=arguments)
    assert launcher.seen()["worker0"]["argv"] == list(arguments)


def test_a_module_can_be_run(launcher):
    (launcher.folder / "my_module.py").write_text(PRELUDE + "note(argv=sys.argv[1:])")
    env = {
        "PYTHONPATH": os.pathsep.join([str(launcher.folder), str(Path(__file__).parents[3])]),
        "DIR": str(launcher.folder),
    }
    process = launcher.group.start_python("tfs-run", *RUN, "--workers", "2", "-m", "my_module", "-v", env=env)
    assert process.wait(20) == 0
    assert [entry["argv"] for entry in launcher.seen().values()] == [["-v"], ["-v"]]


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


@pytest.mark.parametrize(
    ("host", "share"), [("127.0.0.1", {"worker0", "worker1", "ps0"}), ("other.example", {"worker2", "ps1"})]
)
def test_each_host_starts_its_share_with_the_same_addresses(launcher, host, share):
    places = ("--hosts", "127.0.0.1,other.example", "--port-base", "30000", "--this-host", host)
    code = "note(cluster=config['cluster'])"
    assert launcher.run("--workers", "3", "--ps", "2", "--grace", "30", *places, code=code)[0] == 0
    expected = {
        "worker": ["127.0.0.1:30000", "127.0.0.1:30001", "other.example:30002"],
        "ps": ["127.0.0.1:30003", "other.example:30004"],
    }
    assert {name: entry["cluster"] for name, entry in launcher.seen().items()} == dict.fromkeys(
        share, expected
    )


def test_this_host_is_found_by_its_address(launcher):
    places = ("--hosts", "127.0.0.1,192.0.2.77", "--port-base", "30000")
    assert launcher.run("--workers", "2", *places, code="note()")[0] == 0
    assert set(launcher.seen()) == {"worker0"}


def test_threads_are_shared_out_unless_set(launcher):
    code = "note(threads=[os.environ['OMP_NUM_THREADS'], os.environ['TF_NUM_INTRAOP_THREADS']])"
    _, log = launcher.run("--workers", "1", code=code, env={"OMP_NUM_THREADS": "17"})
    assert launcher.seen()["worker0"]["threads"] == ["17", "1"]
    assert "starting 1 process" in log


@pytest.mark.parametrize(
    ("given", "expected"), [({}, "glibc.malloc.hugetlb=1"), ({"GLIBC_TUNABLES": ""}, "")]
)
def test_huge_pages_are_asked_for_unless_the_environment_says_otherwise(launcher, given, expected):
    code = "note(tunables=os.environ['GLIBC_TUNABLES'])"
    assert launcher.run("--workers", "1", code=code, env=given)[0] == 0
    assert launcher.seen()["worker0"]["tunables"] == expected


def test_threads_can_be_given(launcher):
    code = "note(threads=[os.environ['OMP_NUM_THREADS'], os.environ['TF_NUM_INTRAOP_THREADS']])"
    _, log = launcher.run("--threads", "3", code=code)
    assert launcher.seen()["worker0"]["threads"] == ["3", "3"]
    assert (
        "OMP_NUM_THREADS = TF_NUM_INTRAOP_THREADS = TF_NUM_INTEROP_THREADS = 3 (change with --threads)" in log
    )


def test_gpus_are_given_out_without_overlap(launcher):
    code = "note(gpus=os.environ['CUDA_VISIBLE_DEVICES'])"
    arguments = ("--workers", "1", "--chief", "--ps", "1", "--gpus-per-worker", "2", "--grace", "30")
    status, _ = launcher.run(*arguments, code=code, env={"CUDA_VISIBLE_DEVICES": "4,5,6,7,8"})
    assert status == 0
    gpus = {name: entry["gpus"] for name, entry in launcher.seen().items()}
    assert gpus == {"chief0": "4,5", "worker0": "6,7", "ps0": ""}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "x"], "argument --workers: 'x' is not a count"),
        (["--workers", "0"], "no process would train: --workers 0 needs --chief"),
        (["--hosts", "a,b"], "--hosts needs --port-base"),
        (["--hosts", "a,a", "--port-base", "1"], "--hosts names a twice"),
        (["--hosts", "a,,b", "--port-base", "1"], "--hosts has '': it has no host"),
        (
            ["--hosts", "a,b", "--port-base", "1", "--workers", "2", "--this-host", "c"],
            "--this-host c is none of",
        ),
        (["--hosts", "a,b", "--port-base", "1", "--this-host", "a"], "host b has no process to run"),
        (
            ["--hosts", "a.invalid,b.invalid", "--port-base", "9", "--workers", "2"],
            "is this machine; name it with",
        ),
        (["--this-host", "a"], "--this-host needs --hosts"),
        (["--port-base", "65535", "--workers", "2"], "goes beyond port 65535"),
        (["--port-base", "0"], "'0' is not a port"),
        (["--grace", "soon"], "'soon' is not a number of seconds"),
        (["--grace", "-1"], "'-1' is not a number of seconds"),
        (["--threads", "0"], "'0' is not a count of at least 1"),
        (["--gpus-per-worker", "1"], "needs 1 GPUs on this host, which has 0"),
        (["--wrokers", "1"], "unrecognized|there is no script|required"),
    ],
)
def test_wrong_arguments_are_refused_in_one_line(launcher, arguments, message):
    status, log = launcher.run(*arguments, code="note()")
    assert status == 2
    assert re.search(message, log)
    assert log.count("\n") == 1
    assert log.startswith("tfs-run: error: ")
    assert launcher.seen() == {}


def test_a_script_that_is_not_there_is_named(launcher):
    process = launcher.group.start_python("tfs-run", *RUN, "nowhere.py")
    assert process.wait(10) == 2
    assert process.log() == "tfs-run: error: there is no script 'nowhere.py'; for a module write -m\n"


def test_closing_its_output_ends_all(launcher):
    script = launcher.folder / "talks.py"
    script.write_text(
        PRELUDE
        + "note()\nwait_for_notes('worker0', 'worker1')\nwhile True: print('again', flush=True); time.sleep(0.01)"
    )
    line = (
        'set -o pipefail; "$0" -m tf_strategies.launch.run --workers 2 --grace 1 "$1" 2>/dev/null | head -n 3'
    )
    process = launcher.group.start(
        "shell", ["bash", "-c", line, sys.executable, str(script)], env={"DIR": str(launcher.folder)}
    )
    assert process.wait(15) == 143
    assert all(gone(entry["pid"]) for entry in launcher.seen().values())


def test_tls_encrypts_a_training_with_certificates_that_are_removed(launcher) -> None:
    code = """
import numpy as np, tensorflow as tf, tf_strategies as tfs
options = tfs.CommunicationOptions(transport="tcp", security="tls", timeout=60)
strategy = tfs.CollectiveAllReduceStrategy(options)
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(3, kernel_initializer="ones")])
    model.compile(tf.keras.optimizers.SGD(0.1), "mse")
x = np.arange(64, dtype=np.float32).reshape(16, 4) / 64
model.fit(tf.data.Dataset.from_tensor_slices((x, x[:, :3])).batch(8), epochs=2, verbose=0)
weights = [float(each) for each in model.get_weights()[0].ravel()]
note(transport=strategy.communication_stats().transport, weights=weights, folder=os.environ["TF_STRATEGIES_TLS"])
"""
    status, log = launcher.run("--workers", "2", "--tls", code=code, timeout=120)
    assert status == 0, log
    first, second = launcher.seen().values()
    assert first["transport"] == second["transport"] == "tcp (TLS 1.3)"
    assert first["weights"] == second["weights"] != [1.0] * 12
    assert not Path(first["folder"]).parent.exists()


def test_tls_on_several_hosts_needs_certificates_of_the_user(launcher) -> None:
    status, log = launcher.run("--hosts", "127.0.0.1", "--port-base", "22222", "--tls")
    assert status == 2
    assert "with --hosts set TF_STRATEGIES_TLS" in log
