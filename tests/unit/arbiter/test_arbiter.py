"""Asks arbiters over real connections."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from typing import Iterator

import pytest

from tests.support.processes import ProcessGroup, ReservedPorts
from tf_strategies.arbiter.asking import Arbiter
from tf_strategies.arbiter.serving import serving
from tf_strategies.arbiter.votes import Vote, Votes
from tf_strategies.control_plane.remote_link import RemoteLink
from tf_strategies.errors import BootstrapError

pytestmark = pytest.mark.any_line

SECRET = b"a secret of this test's cluster"
ONE, OTHER = (Vote(7, frozenset({rank}), (f"worker {rank}",)) for rank in (0, 1))


@contextlib.contextmanager
def arbiter_at(address: str) -> Iterator[None]:
    server = serving(address, Votes(), SECRET, None)
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
        assert found.endswith("; see its log, then restart all workers")
        assert 0.9 < time.monotonic() - start < 10


def test_another_secret_is_refused_at_once():
    with ReservedPorts(1) as ports, arbiter_at(ports.addresses[0]):
        start = time.monotonic()
        assert "does not answer" in Arbiter(ports.addresses[0], b"another secret", None, within=30).silence()
        assert time.monotonic() - start < 10


def test_a_name_that_cannot_be_resolved_is_no_answer():
    assert "does not answer" in Arbiter("no.such.host.invalid:2222", SECRET, None, within=0.5).silence()


def test_messages_that_are_none_end_the_connection():
    with ReservedPorts(1) as ports, arbiter_at(ports.addresses[0]):
        for wrong in (
            {"type": "hello"},
            {"type": "vote", "group": 1 << 70, "ranks": [], "names": []},
            {"type": "vote", "group": 1, "ranks": [-1], "names": []},
            {"type": "vote", "group": 1, "ranks": [1], "names": 5},
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
        serving(ports.addresses[0], Votes(), SECRET, None)


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
            process.wait_for_text(f"the arbiter listens on {address}", 20)
            assert bool(arbiter.objection(asked)) == (asked is ONE)
            again = group.start(f"again{number}", command, env={"TF_STRATEGIES_SECRET_FILE": str(secret)})
            assert again.wait(20) == 1
            assert f"tfs-arbiter: error: another arbiter uses {votes}" in again.log()
            process.signal(signal.SIGTERM)
            assert process.wait(20) == 0, process.log()
        assert "worker 1 may train on" in group["arbiter0"].log()
        assert "worker 0 may not train on: the other half goes on, worker 1" in group["arbiter1"].log()
