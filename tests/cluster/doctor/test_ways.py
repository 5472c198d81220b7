"""How doctors are started, how reports find their way, and what a stranger can do."""

from __future__ import annotations

import json
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from tests.support import namespaces, ssh_hosts
from tests.support.doctors import Doctors
from tests.support.processes import REPOSITORY, ProcessGroup, ReservedPorts, wait_until
from tests.support.switch import Switch

pytestmark = [pytest.mark.any_line, pytest.mark.waits]

DATA_PORTS = {"TF_STRATEGIES_PORTS": "40000-40010"}


def test_eight_tasks_of_one_host_within_30_seconds(tmp_path: Path) -> None:
    """Started by tfs-run, and with everything: the operations are loaded, too."""
    start = time.monotonic()
    with ProcessGroup(tmp_path) as group:
        doctor = ("-m", "tf_strategies.doctor", "--json", str(tmp_path / "found.json"))
        run = group.start_python("run", "-m", "tf_strategies.launcher.run", "--workers", "8", *doctor)
        assert run.wait(60) == 0
    assert time.monotonic() - start < 30
    found = json.loads((tmp_path / "found.json").read_text())
    assert [each["code"] for each in found["findings"] if each["severity"] != "note"] == []
    assert [each["error"] for each in found["libraries"]] == [""]
    assert len(found["reports"]) == 8


def test_reports_go_over_a_task_in_between(tmp_path: Path) -> None:
    """Nothing passes between the first and the last host. The one between them hears of both."""
    reason = namespaces.missing()
    if reason:
        pytest.skip(reason)
    with (
        Switch(3) as hosts,
        Doctors(tmp_path, [f"{each}:22022" for each in hosts.addresses], wait=2.0) as doctors,
    ):
        hosts.drop_between(0, 2)
        hosts.drop_between(2, 0)
        for index in range(3):
            doctors.start(index, inside=hosts.inside(index), env=DATA_PORTS)
        found = doctors.finish()
    assert set(found.errors) == {"control_port_blocked"}, found.text
    blocked = [each["where"] for each in found.findings if each["code"] == "control_port_blocked"]
    assert [each.replace(":22022", "") for each in blocked] == [
        "worker 0 (10.213.9.1) -> worker 2 (10.213.9.3)",
        "worker 2 (10.213.9.3) -> worker 0 (10.213.9.1)",
    ]
    assert len(found.content["reports"]) == 3 and set(found.statuses.values()) == {1}


def test_over_ssh_all_hosts_are_examined(tmp_path: Path) -> None:
    reason = ssh_hosts.missing()
    if reason:
        pytest.skip(reason)
    with ssh_hosts.SshHosts(tmp_path) as hosts, ProcessGroup(tmp_path) as group:
        both = ",".join(f"{each}:2" for each in hosts.addresses)
        doctor = ["-m", "tf_strategies.doctor", "--without-library"]
        command = [
            sys.executable,
            "-m",
            "tf_strategies.launcher.run",
            "--ssh",
            hosts.ssh,
            "--hosts",
            both,
            *doctor,
        ]
        run = group.start("run", hosts.run(0, *command), env={"PYTHONPATH": str(REPOSITORY)})
        assert run.wait(60) == 0
        assert "verdict: all is well with 4 of 4 tasks on 2 hosts" in run.log()
        assert "1 wire between hosts" in run.log()


def test_the_end_of_the_first_task_leaves_the_others_with_what_they_know(tmp_path: Path) -> None:
    with ReservedPorts(3) as ports, Doctors(tmp_path, ports.addresses, wait=5.0) as doctors:
        first, second = doctors.start(0), doctors.start(1)
        first.wait_for_text("waiting for worker 2", timeout=20)
        first.kill()
        assert second.wait(30) == 1
        found = doctors.finish("worker1")
    assert set(found.errors) == {"not_started", "report_missing"}, found.text


def test_a_task_that_is_stopped_is_named(tmp_path: Path) -> None:
    with ReservedPorts(2) as ports, Doctors(tmp_path, ports.addresses, wait=3.0) as doctors:
        stopped = doctors.start(1)
        wait_until(lambda: _connects(("127.0.0.1", ports.ports[1])), 20, "the second task")
        stopped.signal(signal.SIGSTOP)
        assert doctors.start(0).wait(30) == 1
        stopped.signal(signal.SIGKILL)
        found = doctors.finish()
    assert set(found.errors) == {"other_program"}, found.text
    assert "a doctor that is stopped does not answer, either" in found.text


def test_an_evaluator_that_reaches_nobody_is_examined_alone(tmp_path: Path) -> None:
    with ReservedPorts(1) as ports, Doctors(tmp_path, ports.addresses, wait=1.0) as doctors:
        doctors.start(0, role="evaluator")
        found = doctors.finish("evaluator0")
    assert found.statuses == {"evaluator0": 0} and not found.findings, found.text
    assert "an evaluator needs none" in found.text


def test_a_stranger_keeps_nobody_out_and_is_gone_within_ten_seconds(tmp_path: Path) -> None:
    with ReservedPorts(2) as ports, Doctors(tmp_path, ports.addresses, wait=20.0) as doctors:
        doctors.start(0)
        place = ("127.0.0.1", ports.ports[0])
        wait_until(lambda: _connects(place), 20, "the first task")
        silent = [socket.create_connection(place, 5) for _ in range(100)]
        for said in (b"GET / HTTP/1.1\r\n\r\n", b"TFSDOCT1\1" + bytes(200), b"\xff" * 4096):
            with socket.create_connection(place, 5) as stranger:
                stranger.sendall(said)
        start = time.monotonic()
        silent[0].settimeout(15)
        assert silent[0].recv(1) == b"" and time.monotonic() - start < 10
        doctors.start(1)
        found = doctors.finish()
        for each in silent:
            each.close()
    assert set(found.statuses.values()) == {0} and not found.findings, found.text


def test_without_a_secret_what_is_no_message_ends_the_connection_alone(tmp_path: Path) -> None:
    from tf_strategies.doctor.link import _MAGIC, _key
    from tf_strategies.handshake import CHALLENGE_BYTES, Connecting

    with ReservedPorts(2) as ports, Doctors(tmp_path, ports.addresses, wait=20.0) as doctors:
        doctors.start(0, env={"TF_STRATEGIES_SECRET_FILE": ""})
        place = ("127.0.0.1", ports.ports[0])
        wait_until(lambda: _connects(place), 20, "the first task")
        bad = [
            b'{"kind": 3}',
            b"[]",
            b'{"kind": "greeting", "content": {"task": 1}}',
            b"{" * 5000,
            b"nothing",
        ]
        for content in bad:
            with socket.create_connection(place, 5) as stranger:
                end = Connecting(_key(b""), _MAGIC + b"\0")
                stranger.sendall(end.opening)
                answer = b""
                while len(answer) < len(_MAGIC) + 1 + CHALLENGE_BYTES:
                    answer += stranger.recv(1024)
                proof, session = end.answer(answer[len(_MAGIC) + 1 :])
                sealed = session.seal(content)
                stranger.sendall(proof + len(sealed).to_bytes(4, "big") + sealed)
                stranger.settimeout(15)
                assert stranger.recv(1) == b""
        doctors.start(1, env={"TF_STRATEGIES_SECRET_FILE": ""})
        found = doctors.finish()
    assert set(found.statuses.values()) == {0} and not found.findings, found.text


def test_it_listens_at_the_address_of_tf_config_alone(tmp_path: Path) -> None:
    reason = namespaces.missing()
    if reason:
        pytest.skip(reason)
    with (
        namespaces.TwoHosts() as hosts,
        Doctors(tmp_path, [f"{each}:22022" for each in hosts.addresses]) as doctors,
    ):
        inside = [["ip", "netns", "exec", hosts.name(index)] for index in range(2)]
        doctors.start(0, inside=inside[0], env=DATA_PORTS)
        control = f"{hosts.addresses[0]}:22022"
        wait_until(lambda: control in hosts.listening(0), 20, "the first task")
        assert sorted(hosts.listening(0)) == [control, f"{hosts.addresses[0]}:40000"]
        doctors.start(1, inside=inside[1], env=DATA_PORTS)
        assert set(doctors.finish().statuses.values()) == {0}


def _connects(place: tuple[str, int]) -> bool:
    try:
        socket.create_connection(place, 1).close()
        return True
    except OSError:
        return False
