"""Tests what tfs-run gives to real processes, where it starts them, what it prints, and which arguments it refuses."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.cluster.launcher.launcher import PRELUDE, RUN

pytestmark = [pytest.mark.any_line, pytest.mark.quick, pytest.mark.waits]


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
