"""The parts of tfs-doctor that need no network."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.doctor.reports import healthy, measured, report
from tf_strategies.cluster import Cluster
from tf_strategies.doctor import library, memory, table
from tf_strategies.doctor.facts import environment, machine, names, network, ports
from tf_strategies.doctor.judging import judge
from tf_strategies.doctor.main import main
from tf_strategies.doctor.plan import Plan
from tf_strategies.doctor.records import Greeting, Report
from tf_strategies.doctor.rounds import tournament
from tf_strategies.doctor.schema import from_json, to_json

pytestmark = pytest.mark.any_line

CLUSTER = {
    "cluster": {"ps": ["p:1"], "worker": ["a:1", "a:2", "b:1"], "chief": ["c:1"]},
    "task": {"type": "worker", "index": 1},
}


@pytest.mark.parametrize("count", range(10))
def test_in_a_tournament_all_meet_once_and_nobody_is_twice_in_a_round(count: int) -> None:
    rounds = tournament(range(count))
    for each in rounds:
        players = [player for pair in each for player in pair]
        assert len(players) == len(set(players))
    assert sorted(pair for each in rounds for pair in each) == list(itertools.combinations(range(count), 2))


def test_a_plan_lists_the_chief_first_and_knows_the_first_task_of_each_host() -> None:
    plan = Plan.of(Cluster.from_tf_config(json.dumps(CLUSTER)))
    assert plan.tasks == ["chief 0", "worker 0", "worker 1", "worker 2", "ps 0"]
    assert [each for each in plan.tasks if plan.for_task(each).is_first_of_host] == [
        "chief 0",
        "worker 0",
        "worker 2",
        "ps 0",
    ]
    assert sorted(["evaluator 0", "worker 2", "chief 0", "ps 0"], key=plan.place)[0] == "chief 0"
    assert plan.name("evaluator 0") == "evaluator 0"
    assert plan.names(plan.tasks).endswith("and 1 more")


def test_plans_of_one_cluster_have_one_digest() -> None:
    first, second = (
        Plan("worker 0", dict(pairs))
        for pairs in ((("a", "x:1"), ("b", "y:1")), (("b", "y:1"), ("a", "x:1")))
    )
    assert first.digest == second.digest != Plan("worker 0", {"a": "x:1"}).digest


def test_a_report_survives_json() -> None:
    made = report("worker 0", {"worker 0": "a:1", "worker 1": "b:1"})
    assert from_json(Report, json.loads(json.dumps(to_json(made)))) == made


@pytest.mark.parametrize(
    "change",
    [
        {"task": 3},
        {"task": "x" * 5000},
        {"pid": True},
        {"pid": 1 << 70},
        {"pid": "1"},
        {"further": 1},
        {"sample": 1.5},
        {"host": None},
        {"host": ["a"]},
    ],
)
def test_what_does_not_fit_is_refused(change: dict) -> None:
    good = to_json(Greeting("worker 0", "r", "d", "meet", 1, "n", "h", "p", 1, 2, "c"))
    assert from_json(Greeting, good)
    with pytest.raises(ValueError, match=r"Greeting"):
        from_json(Greeting, {**good, **change})


@pytest.mark.parametrize(
    "change", [{"heard": "worker 1"}, {"heard": [1]}, {"probes": {"worker 1": {}}}, {"facts": []}]
)
def test_what_does_not_fit_inside_a_report_is_refused(change: dict) -> None:
    good = to_json(report("worker 0", {"worker 0": "a:1", "worker 1": "b:1"}))
    with pytest.raises(ValueError, match=r"Report"):
        from_json(Report, {**good, **change})
    for value in (float("nan"), float("inf"), 1 << 64, 10**400):
        good["probes"]["worker 1"]["offset"] = value
        with pytest.raises(ValueError, match=r"Report.probes.worker 1.offset"):
            from_json(Report, good)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)


@given(ANY_JSON, st.data())
def test_any_json_fits_or_is_refused(value: object, data: st.DataObject) -> None:
    """Also in the place of any part of a report that is right otherwise."""
    good = to_json(report("worker 0", {"worker 0": "a:1", "worker 1": "b:1"}))
    place, key = good, data.draw(st.sampled_from(sorted(good)))
    while isinstance(place[key], dict) and place[key] and data.draw(st.booleans()):
        place = place[key]
        key = data.draw(st.sampled_from(sorted(place)))
    place[key] = value
    for each in (value, good):
        with contextlib.suppress(ValueError):
            assert isinstance(from_json(Report, each), Report)


def test_a_port_is_held_by_this_process() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        assert ports.holder_of(holder.getsockname()[1]).startswith(f"process {os.getpid()} (")
    assert ports.holder_of(1) == "a process that has ended"


def test_names_resolve_or_say_why() -> None:
    found = names.resolve_all(["127.0.0.1", "no-such-host.invalid"])
    assert found["127.0.0.1"].addresses == ["127.0.0.1"] and not found["127.0.0.1"].error
    assert not found["no-such-host.invalid"].addresses and found["no-such-host.invalid"].error


def test_the_loopback_interface_has_an_mtu() -> None:
    name, mtu, _ = network.interface("127.0.0.1")
    assert name == "lo" and mtu >= 1280
    assert network.interface("192.0.2.1") == ("", 0, 0)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, 0.0),
        ({"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 0.0),
        ({}, 0.0),
    ],
)
def test_the_quota_of_a_control_group(files: dict[str, str], expected: float, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert machine.quota(tmp_path) == expected


def test_shared_memory_that_is_missing_says_why(tmp_path: Path) -> None:
    total, free, error = machine.shared_memory(str(tmp_path))
    assert 0 < free <= total and not error
    assert machine.shared_memory(str(tmp_path / "nowhere"))[2].startswith("FileNotFoundError")
    assert list(tmp_path.iterdir()) == []


def test_proxies_lose_their_passwords() -> None:
    environ = {"http_proxy": "http://me:hunter2@proxy:80", "no_proxy": "a,b", "HOME": "/root"}
    assert environment.proxies(environ) == {"http_proxy": "http://proxy:80", "no_proxy": "a,b"}


def test_the_memory_of_a_process_is_read_only_where_the_sample_is() -> None:
    sample = memory.Sample()
    assert memory.read_sample(os.getpid(), sample.address, sample.content) == "ok"
    assert "other bytes" in memory.read_sample(os.getpid(), sample.address, "00" * memory.SAMPLE_BYTES)
    assert "bad address" in memory.read_sample(os.getpid(), 16, sample.content)
    assert ctypes.sizeof(ctypes.c_void_p) == 8


@pytest.mark.parametrize(
    ("written", "status", "error"),
    [
        ('noise\ntfs-doctor library: {"built_for": "2.21.0", "error": ""}\n', 0, ""),
        ("Traceback\nImportError: x", 1, "the process that loads them ended with status 1: ImportError: x"),
        ("", -11, "the process that loads them was ended by SIGSEGV"),
    ],
)
def test_how_the_library_loaded(written: str, status: int, error: str) -> None:
    assert library._outcome("worker 0", written, status).error == error


def test_the_table_has_a_row_for_each_task_and_a_matrix() -> None:
    view = healthy(3, measured=[measured(0, 1), measured(0, 2), measured(1, 2, rate=5e8)])
    lines = table.draw(view, judge(view)).splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [["worker", str(index)] for index in range(3)]
    assert "the slowest is worker 1 - worker 2 with 500 MB/s" in "\n".join(lines)
    assert lines[-1] == "verdict: all is well with 3 of 3 tasks on 3 hosts"


def test_strict_makes_errors_of_warnings() -> None:
    view = healthy(3, measured=[measured(0, 1), measured(0, 2), measured(1, 2, rate=1e6)])
    findings = judge(view)
    assert [table.summary(findings, strict=strict) for strict in (False, True)] == [0, 1]
    assert table.verdict(view, findings).endswith("the job can start")
    assert "correct that" in table.verdict(view, findings, strict=True)


@pytest.mark.parametrize(
    "arguments", [["--wait", "0"], ["--wait", "x"], ["--nonsense"], ["--log-dir"], ["--json", "/nowhere/x"]]
)
def test_wrong_arguments_exit_with_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("tfs-doctor: error: ")


def test_a_wrong_tf_config_is_a_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a"]}, "task": {"type": "worker", "index": 0}}')
    assert main([]) == 1
    assert "error tf_config: " in capsys.readouterr().out


def test_without_tf_config_this_host_is_examined_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert main(["--without-library", "--json", str(tmp_path / "found.json")]) == 0
    text = capsys.readouterr().out
    assert text.startswith("TF_CONFIG is not set: this host is examined alone")
    assert text.rstrip().endswith("verdict: all is well with 1 of 1 task on 1 host")
    assert json.loads((tmp_path / "found.json").read_text())["findings"] == []
