"""The hosts that a command or a file names, and answers that fail."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.support.processes import wait_until
from tf_strategies.launcher import host_watch
from tf_strategies.launcher.host_watch import HostWatch

pytestmark = pytest.mark.any_line


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_watch, "_EVERY_SECONDS", 0.05)


def command(folder: Path, text: str) -> str:
    script = folder / "hosts.sh"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(0o755)
    return str(script)


def test_a_command_names_hosts_and_slots(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = command(tmp_path, f"echo localhost:2; echo 127.0.0.1; echo; cat {tmp_path}/more")
    (tmp_path / "more").write_text("192.0.2.1:8  # of documentation, so it is not this machine\n")
    with HostWatch(source) as watch:
        assert watch.places == 3
        (tmp_path / "more").write_text("192.0.2.1:8\nlocalhost slots=2\n")
        wait_until(lambda: watch.places == 5, 10, "the further places")
    assert capfd.readouterr().err.count("192.0.2.1 is not this machine") == 1


def test_an_answer_that_fails_is_told_once_and_the_last_one_stays(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hosts"
    file.write_text("localhost:2\n")
    with HostWatch(f"@{file}") as watch:
        file.unlink()
        time.sleep(0.5)
        assert watch.places == 2
        file.write_text("localhost:3\n")
        wait_until(lambda: watch.places == 3, 10, "the next answer")
        file.write_text("localhost:x\n")
        wait_until(lambda: watch._warned, 10, "the second failure")
        file.write_text("")
        wait_until(lambda: watch.places == 0, 10, "no host")
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
        HostWatch(command(tmp_path, text), deadline=0.5)
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
                HostWatch(source, deadline=20)
        else:
            assert HostWatch(source, deadline=20).places == places
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
        HostWatch(source, deadline=20)
    killing.join(10)


@pytest.mark.parametrize("source", ["", "./nowhere.sh", "@nowhere"])
def test_a_source_that_does_not_exist_is_an_error(source: str) -> None:
    with pytest.raises(ValueError, match="--hosts-from"):
        HostWatch(source)
