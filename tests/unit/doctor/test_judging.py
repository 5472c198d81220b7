"""Findings from reports: each fault has its code, and what follows from a fault has none."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.support.processes import REPOSITORY
from tests.unit.doctor.reports import codes, facts, healthy, measured, probe, report, with_facts, with_probe
from tf_strategies.doctor.findings import CODES, Finding, Severity
from tf_strategies.doctor.judging import View, judge
from tf_strategies.doctor.judging.agreement import offsets
from tf_strategies.doctor.plan import Plan
from tf_strategies.doctor.records import Library, Resolution

pytestmark = pytest.mark.any_line


def without(view: View, task: str, kind: str, text: str = "why") -> View:
    """A view in which a task has sent no report, and all others failed to reach it."""
    reports = {each: report_ for each, report_ in view.reports.items() if each != task}
    view = dataclasses.replace(view, reports=reports)
    for source in reports:
        view = with_probe(view, source, task, control=kind, control_text=text, data="", large="")
    return view


def test_nothing_is_wrong_with_healthy_tasks() -> None:
    assert judge(healthy(4, measured=[measured(0, 1), measured(0, 2), measured(1, 2)])) == []


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("refused", "not_started"),
        ("silent", "not_reached"),
        ("unreachable", "not_reached"),
        ("stranger", "other_program"),
        ("mute", "other_program"),
        ("wrong_task", "wrong_task"),
        ("secret", "secret_differs"),
    ],
)
def test_a_missing_task_is_named_by_how_it_could_not_be_reached(kind: str, code: str) -> None:
    found = judge(without(healthy(), "worker 2", kind))
    assert [each.code for each in found] == [code]
    assert found[0].where == "worker 2 (10.0.0.3:2222)" and found[0].severity is Severity.ERROR


def test_a_task_that_was_connected_and_has_not_reported_is_not_called_missing() -> None:
    view = healthy()
    reports = {each: report_ for each, report_ in view.reports.items() if each != "worker 2"}
    view = dataclasses.replace(view, reports=reports, alive=frozenset(["worker 1", "worker 2"]))
    assert codes(view) == ["report_missing"]


def test_a_missing_task_is_never_well() -> None:
    assert codes(without(healthy(), "worker 2", "unresolved")) == ["report_missing"]


@pytest.mark.parametrize(("listens", "code"), [("taken", "port_taken"), ("not_here", "address_not_here")])
def test_a_task_that_cannot_listen_is_not_called_blocked(listens: str, code: str) -> None:
    view = healthy()
    broken = dataclasses.replace(view.reports["worker 1"], listens=listens, listens_text="because")
    view = dataclasses.replace(view, reports={**view.reports, "worker 1": broken})
    for source in ("worker 0", "worker 2"):
        view = with_probe(view, source, "worker 1", control="refused", data="", large="")
    assert codes(view) == [code]


def test_a_second_process_with_one_index_explains_that_another_is_missing() -> None:
    view = without(healthy(), "worker 2", "refused")
    twice = dataclasses.replace(view.reports["worker 1"], twins={"worker 1": "process 7 of host b"})
    view = dataclasses.replace(view, reports={**view.reports, "worker 1": twice})
    assert codes(view) == ["duplicate_task"]


def test_blocked_ports_are_one_finding_for_all_who_are_kept_out() -> None:
    view = healthy()
    for source in ("worker 0", "worker 1"):
        view = with_probe(view, source, "worker 2", data="silent")
    (finding,) = judge(view)
    assert finding.code == "data_port_blocked"
    assert finding.where == "worker 0 (10.0.0.1:2222), worker 1 (10.0.0.2:2222) -> worker 2 (10.0.0.3:2222)"
    assert "10.0.0.3:40000" in finding.text


@pytest.mark.parametrize(
    ("target", "data", "severity"),
    [
        ("worker 0", "ok", Severity.ERROR),
        ("worker 2", "ok", Severity.WARNING),  # all-reduce uses the address of the first worker
        ("worker 2", "", Severity.ERROR),
        ("worker 2", "silent", Severity.ERROR),
    ],
)
def test_all_reduce_needs_some_addresses_more_than_others(target: str, data: str, severity: Severity) -> None:
    (finding,) = judge(with_probe(healthy(), "worker 1", target, control="silent", data=data))
    assert (finding.code, finding.severity) == ("control_port_blocked", severity)


@pytest.mark.parametrize(("has_secret", "severity"), [(True, Severity.NOTE), (False, Severity.ERROR)])
def test_protected_servers_need_no_data_ports(has_secret: bool, severity: Severity) -> None:
    addresses = {"worker 0": "10.0.0.1:1", "ps 0": "10.0.0.2:2"}
    view = View(Plan("worker 0", addresses), {each: report(each, addresses) for each in addresses})
    for each in addresses:
        view = with_facts(view, each, has_secret=has_secret)
    found = judge(with_probe(view, "worker 0", "ps 0", data="silent"))
    assert [each.severity for each in found if each.code == "data_port_blocked"] == [severity]
    (blocked,) = [
        each
        for each in judge(with_probe(view, "ps 0", "worker 0", control="silent"))
        if each.code != "no_secret"
    ]
    assert blocked.severity is Severity.ERROR


def test_both_mtus_of_a_black_hole_are_named() -> None:
    view = with_facts(healthy(2), "worker 1", mtu=9000)
    (finding,) = [
        each for each in judge(with_probe(view, "worker 1", "worker 0", large="out")) if each.severity
    ]
    assert finding.code == "mtu_black_hole" and finding.where.startswith("worker 1")
    assert "9000 on eth0 of worker 1 and 1500 on eth0 of worker 0" in finding.text


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"shm_free": 1 << 20}, None),  # it shares memory with nobody
        ({"open_files": 64}, "open_files_few"),
        ({"processes": 100}, "processes_few"),
        ({"processes": 100, "is_root": True}, None),
        ({"locked_memory": 1 << 16}, None),
        ({"locked_memory": 1 << 16, "has_rdma": True}, "locked_memory_low"),
        ({"quota": 0.5}, "cores_pinned"),
        ({"gpu_error": "it failed"}, "gpu_driver"),
        ({"secret_error": "it is wrong"}, "secret_unusable"),
        ({"tls_error": "it has expired"}, "tls_unusable"),
        ({"tls": "abc"}, "tls_differs"),
        ({"has_secret": False}, "no_secret"),
        ({"proxies": {"http_proxy": "http://p"}}, None),  # workers use none
    ],
)
def test_what_a_host_lacks(changes: dict, code: str | None) -> None:
    assert codes(with_facts(healthy(), "worker 1", **changes)) == ([] if code is None else [code])


def on_one_host(count: int, **changes: object) -> View:
    addresses = {f"worker {index}": f"127.0.0.1:{4000 + index}" for index in range(count)}
    reports = {each: report(each, addresses, facts=facts(**changes)) for each in addresses}
    return View(Plan("worker 0", addresses), reports)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"shm_free": 1 << 20}, ["shm_small"]),
        ({"shm_error": "read-only"}, ["shm_unwritable"]),
        ({"cores": [0]}, ["cores_pinned"]),
        ({"cores": [0], "cores_of_host": 1}, ["cores_few"]),
        ({"threads": {"OMP_NUM_THREADS": "64"}}, ["threads_many"]),
        ({"threads": {"OMP_NUM_THREADS": ""}}, ["threads_many"]),
        ({"threads": {"OMP_NUM_THREADS": "1"}}, []),
    ],
)
def test_what_tasks_of_one_host_lack_together(changes: dict, expected: list[str]) -> None:
    assert codes(on_one_host(4, **changes)) == expected


def test_a_note_about_few_cores_is_no_alarm() -> None:
    (finding,) = judge(on_one_host(4, cores=[0], cores_of_host=1))
    assert finding.severity is Severity.NOTE


@pytest.mark.parametrize(
    ("exempt", "expected"), [("", ["proxy"]), ("127.0.0.1", []), ("localhost", ["proxy"])]
)
def test_a_proxy_matters_to_parameter_servers_alone(exempt: str, expected: list[str]) -> None:
    addresses = {"worker 0": "127.0.0.1:1", "ps 0": "127.0.0.1:2"}
    proxies = {"https_proxy": "http://p:1", "no_proxy": exempt}
    reports = {
        each: report(each, addresses, facts=facts(proxies=proxies if each == "ps 0" else {}))
        for each in addresses
    }
    assert codes(View(Plan("worker 0", addresses), reports)) == expected


@pytest.mark.parametrize(
    ("package", "severity"),
    [("tensorflow", Severity.ERROR), ("keras", Severity.ERROR), ("numpy", Severity.WARNING)],
)
def test_versions_that_differ(package: str, severity: Severity) -> None:
    view = healthy()
    versions = {**view.reports["worker 2"].facts.versions, package: "9.9"}
    (finding,) = judge(with_facts(view, "worker 2", versions=versions))
    assert (finding.code, finding.severity) == ("versions_differ", severity)
    assert f"{package} is " in finding.text and "9.9 on worker 2" in finding.text


def test_patches_of_python_and_numpy_may_differ() -> None:
    versions = healthy().reports["worker 2"].facts.versions
    changed = {**versions, "python": "3.11.99", "numpy": f"{versions['numpy']}.99"}
    assert codes(with_facts(healthy(), "worker 2", versions=changed)) == []


def test_a_missing_tensorflow_is_not_called_a_difference() -> None:
    assert codes(with_facts(healthy(), "worker 2", versions={"python": "3.11.7"})) == ["tensorflow_missing"]


def test_a_library_that_does_not_load() -> None:
    view = healthy(libraries=[Library("worker 0", "2.21.0", ""), Library("worker 1", "", "no such file")])
    (finding,) = judge(view)
    assert finding.code == "library_broken" and finding.where.startswith("worker 1")


def test_a_library_that_loads_slowly_is_no_alarm() -> None:
    (finding,) = judge(
        healthy(libraries=[Library("worker 0", "", "they did not load within 22 s", is_late=True)])
    )
    assert (finding.code, finding.severity) == ("not_measured", Severity.NOTE)


def name(*addresses: str, error: str = "", seconds: float = 0.0) -> Resolution:
    return Resolution(list(addresses), error, seconds)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"a": name("10.0.0.1"), "b": name("10.0.0.2")}, []),
        ({"a": name("10.0.0.1"), "b": name("127.0.1.1")}, ["name_is_loopback"]),
        ({"a": name("127.0.1.1"), "b": name("10.0.0.2")}, ["name_is_loopback"]),
        ({"a": name("10.0.0.1", "127.0.1.1"), "b": name("10.0.0.2")}, []),
        ({"a": name(error="unknown"), "b": name("10.0.0.2")}, []),  # it resolved later
        ({"a": name("10.0.0.1", seconds=3.0), "b": name("10.0.0.2")}, ["dns_slow"]),
        ({"a": name("10.9.9.9"), "b": name("10.0.0.2")}, ["name_differs"]),
    ],
)
def test_names(names: dict[str, Resolution], expected: list[str]) -> None:
    addresses = {"worker 0": "a:1", "worker 1": "b:1"}
    good = {"a": name("10.0.0.1"), "b": name("10.0.0.2")}
    reports = {
        "worker 0": report("worker 0", addresses, facts=facts("a", names=good)),
        "worker 1": report("worker 1", addresses, facts=facts("b", names=names)),
    }
    view = View(Plan("worker 0", addresses), reports)
    if names["b"].addresses == ["127.0.1.1"]:  # it listens there
        view = with_probe(view, "worker 0", "worker 1", control="refused", data="")
    if names["a"].addresses == ["127.0.1.1"]:
        view = with_probe(view, "worker 1", "worker 0", control="refused", data="")
    assert codes(view) == expected


@pytest.mark.parametrize("looped", ["a", "b"])
def test_a_loopback_address_by_which_others_are_reached_is_none_of_that_kind(looped: str) -> None:
    """As with two names of one machine."""
    addresses = {"worker 0": "a:1", "worker 1": "b:1"}
    names = {"a": name("10.0.0.1"), "b": name("10.0.0.2"), looped: name("127.0.1.1")}
    reports = {each: report(each, addresses, facts=facts(each, names=names)) for each in addresses}
    assert codes(View(Plan("worker 0", addresses), reports)) == []


def test_a_name_that_never_resolves_is_named_alone() -> None:
    addresses = {"worker 0": "a:1", "worker 1": "b:1"}
    bad = {"a": name(error="unknown"), "b": name("10.0.0.2")}
    good = {"a": name("10.0.0.1"), "b": name("10.0.0.2")}
    reports = {
        "worker 0": report("worker 0", addresses, facts=facts("a", names=good)),
        "worker 1": report("worker 1", addresses, facts=facts("b", names=bad)),
    }
    view = with_probe(
        View(Plan("worker 0", addresses), reports), "worker 1", "worker 0", control="unresolved", data=""
    )
    assert codes(view) == ["name_unresolved"]


def test_a_name_of_one_host_alone_may_resolve_to_loopback() -> None:
    addresses = {"worker 0": "a:1", "worker 1": "a:2"}
    reports = {
        each: report(each, addresses, facts=facts(names={"a": name("127.0.1.1")})) for each in addresses
    }
    assert codes(View(Plan("worker 0", addresses), reports)) == []


def skewed(*clocks: float) -> View:
    view = healthy(len(clocks))
    for source in range(len(clocks)):
        for target in range(len(clocks)):
            if source != target:
                offset = clocks[target] - clocks[source]
                view = with_probe(view, f"worker {source}", f"worker {target}", offset=offset)
    return view


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_one_wrong_clock_does_not_accuse_the_others(wrong: int) -> None:
    clocks = [0.0, 0.01, -0.01]
    clocks[wrong] += 30
    (finding,) = judge(skewed(*clocks))
    assert finding.code == "clock_skew" and finding.severity is Severity.WARNING
    assert finding.where.startswith(f"worker {wrong} (") and "30.0 s ahead of the others" in finding.text


def test_a_clock_is_compared_over_tasks_in_between() -> None:
    view = skewed(0.0, 0.0, 100.0)
    for source, target in (("worker 0", "worker 2"), ("worker 2", "worker 0")):
        view = with_probe(view, source, target, control="silent", offset=0.0)
    assert offsets(view)["worker 2"] == pytest.approx(100.0)
    assert Severity.ERROR in [each.severity for each in judge(view) if each.code == "clock_skew"]


def test_small_differences_of_clocks_are_usual() -> None:
    assert judge(skewed(0.0, 0.2, -0.2)) == []


def test_one_slow_wire_is_named_with_both_rates() -> None:
    wires = [measured(*pair) for pair in ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3))]
    view = healthy(4, measured=[*wires, measured(2, 3, rate=5e7)])
    (finding,) = judge(view)
    assert finding.code == "pair_slow" and finding.where.startswith("worker 2 (")
    assert "50 MB/s" in finding.text and "1 GB/s" in finding.text


@pytest.mark.parametrize(
    "wires",
    [
        [measured(0, 1, rate=1e9), measured(0, 2, rate=1e6)],  # nothing is usual among two
        [measured(0, 1), measured(0, 2), measured(1, 2, rate=3e8)],  # less than four times
        [measured(0, 1), measured(0, 2), measured(1, 2, seconds=0.0015)],  # a busy machine does that
    ],
)
def test_wires_that_are_not_called_slow(wires: list) -> None:
    assert judge(healthy(measured=wires)) == []


def test_a_long_round_trip() -> None:
    wires = [measured(0, 1), measured(0, 2), measured(1, 2, seconds=0.02)]
    assert codes(healthy(measured=wires)) == ["latency_high"]


def test_what_was_not_measured_is_a_note() -> None:
    (finding,) = judge(healthy(measured=[measured(0, 1, error="it took too long")]))
    assert (finding.code, finding.severity) == ("not_measured", Severity.NOTE)


def test_other_clusters_explain_what_is_not_found() -> None:
    view = without(healthy(), "worker 2", "refused")
    other = dataclasses.replace(
        view.reports["worker 1"], digest="other", cluster={"worker 0": "10.0.0.1:2222"}
    )
    found = judge(dataclasses.replace(view, reports={**view.reports, "worker 1": other}))
    assert [each.code for each in found] == ["cluster_differs"]
    assert "worker 1 is at 10.0.0.2:2222 for worker 0, and at no address for worker 1" in found[0].text


def test_a_finding_has_a_known_code() -> None:
    with pytest.raises(ValueError, match="'nonsense' is no code"):
        Finding("nonsense", Severity.NOTE, "", "", "")


def test_the_page_explains_every_code() -> None:
    page = Path(REPOSITORY / "docs" / "doctor.md").read_text()
    assert [code for code in CODES if f"| `{code}` |" not in page] == []


def test_every_code_is_used() -> None:
    sources = "".join(path.read_text() for path in (REPOSITORY / "tf_strategies" / "doctor").rglob("*.py"))
    assert [code for code in CODES if sources.count(f'"{code}"') + sources.count(f" {code}:") < 2] == []


def test_a_probe_without_an_answer_is_no_finding_by_itself() -> None:
    assert probe().large == "ok"
