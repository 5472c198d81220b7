"""The hosts that a command or a file names, and answers that fail."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import Mapping

import pytest

from tests.support.processes import wait_until
from tf_strategies.launcher import host_watch
from tf_strategies.launcher.cluster_plan import LOCAL_HOST
from tf_strategies.launcher.host_watch import HostWatch
from tf_strategies.launcher.machines import Machines

pytestmark = pytest.mark.any_line


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_watch, "_EVERY_SECONDS", 0.05)


def command(folder: Path, text: str) -> str:
    script = folder / "hosts.sh"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    return str(script)


class OneHost:
    """Answers for other hosts: one of them has ports."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def free_ports(self, counts: Mapping[str, int]) -> dict[str, list[int]]:
        ((target, count),) = counts.items()
        self.asked.append(target)
        if target != "user@192.0.2.1":  # of documentation, so it is not this machine
            raise ValueError(f"host {target} did not answer")
        return {target: list(range(5000, 5000 + count))}


def watch_of(
    source: str, *, most: int = 9, deadline: float = 20.0, ssh: OneHost | None = None, why_alone: str = ""
) -> HostWatch:
    return HostWatch(source, Machines(most, ssh or OneHost(), why_alone=why_alone), deadline)


def counts(watch: HostWatch) -> dict[str, int]:
    return {machine.host: places for machine, places in watch.places.items()}


def test_a_command_names_hosts_and_slots(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    here = socket.gethostname()
    source = command(tmp_path, f"echo {here}:2; echo localhost; echo; cat {tmp_path}/more")
    (tmp_path / "more").write_text("192.0.2.9:8\n")
    ssh = OneHost()
    with watch_of(source, most=6, ssh=ssh) as watch:
        assert counts(watch) == {here: 3}
        assert [machine.most for machine in watch.places] == [3]
        (tmp_path / "more").write_text("192.0.2.9:8\nuser@192.0.2.1 slots=2  # comes later\n")
        wait_until(lambda: len(watch.places) == 2, 10, "the further host")
        assert counts(watch) == {here: 3, "192.0.2.1": 2}
        other = next(each for each in watch.places if each.target)
        assert [other.address(position) for position in (0, 1)] == ["192.0.2.1:5000", "192.0.2.1:5001"]
        (tmp_path / "more").write_text(f"{here} slots=2\nuser@192.0.2.1 slots=5\n")
        # It has ports, and shares of its cores, for the slots with which it was first named. So has this machine.
        wait_until(
            lambda: len(ssh.asked) == 2 and counts(watch) == {here: 3, "192.0.2.1": 2}, 10, "all places"
        )
    assert capfd.readouterr().err.count("192.0.2.9 runs no workers: host 192.0.2.9 did not answer") == 1
    assert sorted(ssh.asked) == ["192.0.2.9", "user@192.0.2.1"]


@pytest.mark.parametrize(
    ("first", "then", "told"),
    [
        ("localhost:2\n192.0.2.1:2\n", "", "localhost runs no workers: other hosts cannot reach it"),
        (
            "localhost:2\n",
            "192.0.2.1:2\n",
            "192.0.2.1 runs no workers: it is not this machine, and the first workers listen",
        ),
    ],
)
def test_this_machine_needs_a_name_that_others_know(
    first: str, then: str, told: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hosts").write_text(first)
    with watch_of(f"@{tmp_path}/hosts") as watch:
        (tmp_path / "hosts").write_text(first + then)
        said: list[str] = []
        wait_until(lambda: bool(said.append(capfd.readouterr().err) or told in "".join(said)), 10, told)
        assert "localhost" not in counts(watch)


def test_a_host_is_one_machine_however_it_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "hosts").write_text("user@192.0.2.1:1\nroot@192.0.2.1:1\na..b:1\n")
    watch = watch_of(f"@{tmp_path}/hosts")
    assert counts(watch) == {"192.0.2.1": 1}
    said = capfd.readouterr().err
    assert "root@192.0.2.1 runs no workers: it is the same host as user@192.0.2.1; name it once" in said
    assert "a..b runs no workers: host a..b did not answer" in said


def test_a_job_of_this_machine_alone_may_name_it_localhost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "hosts").write_text("192.0.2.1:2\nlocalhost:2\n")
    watch = watch_of(f"@{tmp_path}/hosts", why_alone="there is a reason")
    assert counts(watch) == {LOCAL_HOST: 2}
    assert [machine.most for machine in watch.places] == [9]
    assert (
        "192.0.2.1 runs no workers: it is not this machine, and there is a reason" in capfd.readouterr().err
    )


def test_an_answer_that_fails_is_told_once_and_the_last_one_stays(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hosts"
    file.write_text("localhost:2\n")
    with watch_of(f"@{file}") as watch:
        file.unlink()
        time.sleep(0.5)
        assert counts(watch) == {LOCAL_HOST: 2}
        file.write_text("localhost:3\n")
        wait_until(lambda: counts(watch) == {LOCAL_HOST: 3}, 10, "the next answer")
        file.write_text("localhost:x\n")
        wait_until(lambda: watch._warned, 10, "the second failure")
        file.write_text("")
        wait_until(lambda: not watch.places, 10, "no host")
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 2
    assert "hosts: [Errno 2] No such file or directory" in said[0]
    assert "; the hosts of before stay" in said[1]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("echo localhost; exit 3", "it ended with status 3"),
        ("sleep 60 & echo $! > pid; echo localhost; wait", "no answer within 0.5 s; it was killed"),
        (
            "exec bash -c 'set -m; sleep 60 & echo $! > pid; echo localhost; wait'",
            "no answer within 0.5 s; it was killed",
        ),
        ("exec yes localhost", "it prints more than 1048576 bytes"),
        ("echo -oProxyCommand=x@a:1", "begins with a dash"),
        ("printf '\\377'", "can't decode byte"),
    ],
)
def test_a_first_answer_that_fails_is_an_error(
    text: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    start = time.monotonic()
    with pytest.raises(ValueError, match=reason):
        watch_of(command(tmp_path, text), deadline=0.5)
    assert time.monotonic() - start < 10
    if "pid" in text:
        pid = int((tmp_path / "pid").read_text())
        wait_until(lambda: not Path(f"/proc/{pid}/exe").exists(), 5, "the end of what it had started")


@pytest.mark.parametrize(("text", "places"), [("echo localhost:2", 2), ("printf localhost:2", None)])
def test_a_process_in_another_session_may_keep_the_output_open(
    text: str, places: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_watch, "_OPEN_SECONDS", 0.2)
    source = command(tmp_path, f"setsid sleep 60 & echo $! > {tmp_path}/pid; {text}")
    start = time.monotonic()
    try:
        if places is None:
            with pytest.raises(ValueError, match=r"without a whole line, .* keeps its output open"):
                watch_of(source)
        else:
            assert counts(watch_of(source)) == {LOCAL_HOST: places}
        assert time.monotonic() - start < 15
    finally:
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_an_answer_is_void_if_the_command_is_killed_and_reaped_by_another_thread(tmp_path: Path) -> None:
    source = command(
        tmp_path,
        f"cd {tmp_path}; echo localhost; sleep 1 & echo $$ > new; mv new pid; exec sleep 60",
    )

    def kill_as_at_the_end_of_an_attempt() -> None:
        wait_until((tmp_path / "pid").exists, 10, "the command")
        pid = int((tmp_path / "pid").read_text())
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

    killing = threading.Thread(target=kill_as_at_the_end_of_an_attempt)
    killing.start()
    with pytest.raises(ValueError, match=r"it was killed$|it ended with status -9"):
        watch_of(source)
    killing.join(10)


@pytest.mark.parametrize("source", ["", "./nowhere.sh", "@nowhere"])
def test_a_source_that_does_not_exist_is_an_error(source: str) -> None:
    with pytest.raises(ValueError, match="--hosts-from"):
        watch_of(source)
