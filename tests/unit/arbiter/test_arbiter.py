"""Asks arbiters over real connections."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import time
from typing import Iterator

import pytest

from tests.support.processes import ProcessGroup, ReservedPorts
from tf_strategies.arbiter import asking
from tf_strategies.arbiter.asking import Arbiter
from tf_strategies.arbiter.serving import ArbiterServer
from tf_strategies.arbiter.votes import Vote, Votes
from tf_strategies.control_plane.link import Connection, refuse
from tf_strategies.control_plane.messages import Message
from tf_strategies.control_plane.remote_link import RemoteLink
from tf_strategies.control_plane.server import ControlServer
from tf_strategies.errors import BootstrapError

pytestmark = pytest.mark.any_line

SECRET = b"a secret of this test's cluster"
ONE, OTHER = (Vote(7, frozenset({rank}), (f"worker {rank}",)) for rank in (0, 1))


@contextlib.contextmanager
def arbiter_at(address: str) -> Iterator[None]:
    server = ArbiterServer(address, Votes(), SECRET, None, print)
    try:
        yield
    finally:
        server.stop()


def test_one_half_goes_on_and_the_other_hears_of_it():
    with ReservedPorts(1) as ports, arbiter_at(ports.addresses[0]):
        arbiter = Arbiter(ports.addresses[0], SECRET, None, 10.0)
        assert arbiter.silence() == ""
        assert arbiter.objection(OTHER) == ""
        assert arbiter.objection(ONE) == (
            f"the arbiter at {ports.addresses[0]} refuses it: the other half goes on, worker 1; "
            "start this worker again, so that it joins them"
        )


def test_silence_is_bounded_and_named():
    with ReservedPorts(1) as ports:
        start = time.monotonic()
        found = Arbiter(ports.addresses[0], SECRET, None, within=1.0).objection(ONE)
        assert found.startswith(f"the arbiter at {ports.addresses[0]} does not answer (UNAVAILABLE")
        assert found.endswith(
            f"; start it with: tfs-arbiter {ports.addresses[0]} --votes FILE; then restart all workers"
        )
        assert 0.9 < time.monotonic() - start < 10


def test_another_secret_is_refused_at_once():
    with ReservedPorts(1) as ports, arbiter_at(ports.addresses[0]):
        start = time.monotonic()
        found = Arbiter(ports.addresses[0], b"another secret", None, within=30).silence()
        assert re.search(r"is another one: .*; correct TF_STRATEGIES_SECRET_FILE there or here$", found)
        assert time.monotonic() - start < 10


def test_something_else_at_the_address_is_no_arbiter():
    with ReservedPorts(1) as ports:
        other = ControlServer("worker 0", ports.addresses[0], 1, SECRET, refuse_all)
        try:
            found = Arbiter(ports.addresses[0], SECRET, None, 10.0).silence()
        finally:
            other.stop()
        assert found.startswith(f"no arbiter is at {ports.addresses[0]}, but something else")


def refuse_all(stream: Connection, message: Message | None) -> None:
    if message is not None:
        stream.handled()
        refuse(stream, "the group is complete")


def test_a_question_is_not_sent_late(monkeypatch):
    """Here looking up the name takes longer than the time."""
    opened = []

    class SlowLink(RemoteLink):
        def __init__(self, *args) -> None:
            time.sleep(0.6)
            super().__init__(*args)
            opened.append(self)

    monkeypatch.setattr(asking, "RemoteLink", SlowLink)
    with ReservedPorts(1) as ports, arbiter_at(ports.addresses[0]):
        assert "does not answer" in Arbiter(ports.addresses[0], SECRET, None, 0.5).objection(ONE)
        assert len(opened) == 1
        assert Arbiter(ports.addresses[0], SECRET, None, 10.0).objection(OTHER) == ""


@pytest.mark.parametrize("host", ["no.such.host.invalid", "a..b"])
def test_a_name_that_cannot_be_resolved_is_no_answer(host):
    assert "does not answer" in Arbiter(f"{host}:2222", SECRET, None, within=0.5).silence()


def test_messages_that_are_none_end_the_connection():
    with ReservedPorts(1) as ports, arbiter_at(ports.addresses[0]):
        for wrong in (
            {"type": "hello"},
            {"type": "vote", "group": 1 << 70, "ranks": [], "names": []},
            {"type": "vote", "group": 1, "ranks": [-1], "names": []},
            {"type": "vote", "group": 1, "ranks": [1], "names": 5},
            {"type": "vote", "group": 1, "ranks": [], "names": []},
            {"type": "vote", "group": 1, "ranks": [1], "names": ["worker 1", "worker 2"]},
            {"type": "vote", "group": 1, "ranks": list(range(4097)), "names": []},
        ):
            ends: list[str] = []
            link = RemoteLink(
                ports.addresses[0],
                SECRET,
                lambda link, message: ends.append("answered"),
                lambda link, reason: ends.append("closed"),
            )
            link.send(wrong)
            link._thread.join(10)
            link.close()
            assert ends == ["closed"], wrong
        assert Arbiter(ports.addresses[0], SECRET, None, 10.0).silence() == ""


def test_an_address_that_is_taken_is_refused():
    with (
        ReservedPorts(1) as ports,
        arbiter_at(ports.addresses[0]),
        pytest.raises(
            BootstrapError,
            match=r"the arbiter at (\S+) cannot listen on \1: the port is taken; end the process that uses the port, or give",
        ),
    ):
        ArbiterServer(ports.addresses[0], Votes(), SECRET, None, print)


def test_the_command_serves_until_a_signal_and_remembers(tmp_path, monkeypatch):
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("1f" * 32 + "\n")
    votes = tmp_path / "votes"
    with ReservedPorts(1) as ports, ProcessGroup(tmp_path) as group:
        address = ports.addresses[0]
        command = [sys.executable, "-m", "tf_strategies.arbiter.main", address, "--votes", str(votes)]
        arbiter = Arbiter(address, bytes.fromhex("1f" * 32), None, within=20)
        for number, asked in enumerate((OTHER, ONE)):
            process = group.start(f"arbiter{number}", command, env={"TF_STRATEGIES_SECRET_FILE": str(secret)})
            process.wait_for_text(f"the arbiter listens on {address}; {votes} has {number} votes", 20)
            assert bool(arbiter.objection(asked)) == (asked is ONE)
            again = group.start(f"again{number}", command, env={"TF_STRATEGIES_SECRET_FILE": str(secret)})
            assert again.wait(20) == 1
            assert f"tfs-arbiter: error: another arbiter uses {votes}" in again.log()
            process.signal(signal.SIGTERM)
            assert process.wait(20) == 0, process.log()
        assert "worker 1 may train on" in group["arbiter0"].log()
        assert "worker 0 may not train on: the other half goes on, worker 1" in group["arbiter1"].log()
