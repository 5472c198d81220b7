"""tfs-doctor names faults of the network: real processes on hosts that are network namespaces."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Iterator

import pytest

from tests.support import namespaces
from tests.support.doctors import Doctors, Found
from tests.support.switch import Switch

pytestmark = [pytest.mark.any_line, pytest.mark.waits]

PORT = 22022
DATA_PORTS = {"TF_STRATEGIES_PORTS": "40000-40010"}
# Runs what follows with a file in place of /etc/hosts.
WITH_HOSTS = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"')

Start = Callable[..., Doctors]


@pytest.fixture(scope="module", autouse=True)
def _possible() -> None:
    reason = namespaces.missing()
    if reason:
        pytest.skip(reason)


@pytest.fixture
def hosts() -> Iterator[Switch]:
    with Switch(2) as made:
        yield made


@pytest.fixture
def doctors(hosts: Switch, tmp_path: Path) -> Iterator[Doctors]:
    """A worker on each of two hosts."""
    with Doctors(tmp_path, addresses_on(hosts), wait=2.0) as made:
        yield made


def addresses_on(hosts: Switch) -> list[str]:
    return [f"{address}:{PORT}" for address in hosts.addresses]


def start_on(hosts: Switch, doctors: Doctors, *indices: int) -> None:
    for index in indices or range(len(hosts.addresses)):
        doctors.start(index, inside=hosts.inside(index), env=DATA_PORTS)


def only(found: Found, code: str) -> dict[str, str]:
    """Returns the error of this code, which is the only one, and says what to do."""
    assert set(found.errors) == {code}, found.text
    assert set(found.statuses.values()) == {1}, found.statuses
    finding = found.errors[code]
    assert f"error {code}: {finding['where']}" in found.text and finding["remedy"] in found.text
    return finding


def test_two_hosts_without_a_fault(hosts: Switch, doctors: Doctors) -> None:
    start_on(hosts, doctors)
    found = doctors.finish()
    assert found.statuses == {"worker0": 0, "worker1": 0}
    assert not found.errors and not found.warnings, found.text
    assert (
        "1 wire between hosts" in found.text
        and "verdict: all is well with 2 of 2 tasks on 2 hosts" in found.text
    )
    assert not doctors.group["worker1"].log(), "the first task alone speaks"


def test_a_task_that_was_never_started(hosts: Switch, doctors: Doctors) -> None:
    start_on(hosts, doctors, 0)
    finding = only(doctors.finish(), "not_started")
    assert finding["where"] == f"worker 1 ({hosts.addresses[1]}:{PORT})"


def test_a_host_that_is_down(hosts: Switch, doctors: Doctors) -> None:
    hosts.drop_between(1, 0)
    start_on(hosts, doctors, 0)
    finding = only(doctors.finish(), "not_reached")
    assert finding["where"] == f"worker 1 ({hosts.addresses[1]}:{PORT})"


@pytest.mark.parametrize("blocked", [0, 1])
def test_a_control_port_that_is_dropped_in_one_direction(
    blocked: int, hosts: Switch, doctors: Doctors
) -> None:
    """All-reduce can do without that of worker 1."""
    hosts.drop_from(blocked, f"{PORT}-{PORT}")
    start_on(hosts, doctors)
    found = doctors.finish()
    if blocked == 0:
        finding = only(found, "control_port_blocked")
    else:
        assert not found.errors and set(found.warnings) == {"control_port_blocked"}, found.text
        finding = found.warnings["control_port_blocked"]
    names = [f"worker {index} ({hosts.addresses[index]}:{PORT})" for index in (1 - blocked, blocked)]
    assert finding["where"] == " -> ".join(names)
    assert "no answer came, as behind a firewall that drops" in finding["text"]


def test_a_control_port_that_is_dropped_for_all(hosts: Switch, doctors: Doctors) -> None:
    """Both lead then, and each says that the other is not reached."""
    for index in range(2):
        hosts.drop_from(index, f"{PORT}-{PORT}")
    start_on(hosts, doctors)
    for index in range(2):
        finding = only(doctors.finish(f"worker{index}"), "not_reached")
        assert f"worker {1 - index} " in finding["where"]


def test_data_ports_that_are_dropped(hosts: Switch, doctors: Doctors) -> None:
    hosts.drop_from(1, DATA_PORTS["TF_STRATEGIES_PORTS"])
    start_on(hosts, doctors)
    finding = only(doctors.finish(), "data_port_blocked")
    assert f"the data port {hosts.addresses[1]}:40000" in finding["text"]
    assert finding["where"].startswith("worker 0")


def test_a_firewall_that_rejects(hosts: Switch, doctors: Doctors) -> None:
    hosts.reject_to(1, f"{PORT}-{PORT}")
    start_on(hosts, doctors)
    finding = only(doctors.finish(), "control_port_blocked")
    assert finding["where"].startswith("worker 1") and "forbids the connection" in finding["text"]


def test_jumbo_frames_that_the_switch_drops(hosts: Switch, doctors: Doctors) -> None:
    for index in range(2):
        hosts.set_mtu(index, 9000)
    start_on(hosts, doctors)
    finding = only(doctors.finish(), "mtu_black_hole")
    assert "9000 on tfs0 of worker 0" in finding["text"] and "9000 on tfs1 of worker 1" in finding["text"]


def start_with_names(hosts: Switch, doctors: Doctors, *tables: str) -> None:
    """Starts both workers, as hosts "tfs-a" and "tfs-b", each with its own /etc/hosts."""
    for index, table in enumerate(tables):
        path = doctors.folder / f"hosts{index}"
        path.write_text(f"127.0.0.1 localhost\n{table}\n")
        doctors.start(index, inside=hosts.inside(index, *WITH_HOSTS, str(path)), env=DATA_PORTS)


@pytest.fixture
def named(hosts: Switch, tmp_path: Path) -> Iterator[Doctors]:
    with Doctors(tmp_path, [f"tfs-a:{PORT}", f"tfs-b:{PORT}"], wait=2.0) as made:
        yield made


def test_a_name_that_resolves_to_127_0_1_1_on_its_own_host(hosts: Switch, named: Doctors) -> None:
    one, other = hosts.addresses
    start_with_names(hosts, named, f"{one} tfs-a\n{other} tfs-b", f"{one} tfs-a\n127.0.1.1 tfs-b")
    finding = only(named.finish(), "name_is_loopback")
    assert finding["where"] == f"worker 1 (tfs-b:{PORT})" and "tfs-b resolves to 127.0.1.1" in finding["text"]


def test_a_name_that_does_not_resolve_on_another_host(hosts: Switch, named: Doctors) -> None:
    one, other = hosts.addresses
    start_with_names(hosts, named, f"{one} tfs-a", f"{one} tfs-a\n{other} tfs-b")
    finding = only(named.finish(), "name_unresolved")
    assert finding["where"].startswith("worker 0") and "tfs-b does not resolve" in finding["text"]


def test_a_name_that_two_hosts_resolve_differently(hosts: Switch, named: Doctors) -> None:
    one, other = hosts.addresses
    start_with_names(hosts, named, f"{one} tfs-a\n{other} tfs-b", f"10.99.99.99 tfs-a\n{other} tfs-b")
    found = named.finish()
    assert "name_differs" in found.warnings and "10.99.99.99" in found.warnings["name_differs"]["text"]
    assert set(found.errors) <= {"control_port_blocked"}, found.text


def test_an_index_that_belongs_to_another_host(hosts: Switch, doctors: Doctors) -> None:
    """The second host starts worker 0 again: both processes say so."""
    doctors.start(0, inside=hosts.inside(0), env=DATA_PORTS)
    doctors.start(0, inside=hosts.inside(1), env=DATA_PORTS, name="again")
    finding = only(doctors.finish(), "duplicate_task")
    assert finding["where"].startswith("worker 0")
    assert "duplicate_task" in doctors.finish("again").errors


def test_one_slow_wire_among_four_hosts(tmp_path: Path) -> None:
    with Switch(4) as hosts, Doctors(tmp_path, addresses_on(hosts)) as doctors:
        hosts.slow_down(1, 2, "40mbit")
        start_on(hosts, doctors)
        found = doctors.finish()
    assert not found.errors and set(found.statuses.values()) == {0}, found.text
    assert set(found.warnings) <= {"pair_slow", "latency_high"}, found.text
    assert "the slowest is worker 1 - worker 2" in found.text
    finding = found.warnings["pair_slow"]
    assert (
        finding["where"] == f"worker 1 ({hosts.addresses[1]}:{PORT}), worker 2 ({hosts.addresses[2]}:{PORT})"
    )
