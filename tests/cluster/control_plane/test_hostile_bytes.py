"""Strangers and lying members at the ports of a job, while it forms and while it runs: it is unharmed, its memory bounded.

ATTACKS has a function for each kind. Those of a stranger do not know the secret; those of a member do.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import struct
from pathlib import Path
from typing import Callable, Dict

import pytest

from tests.cluster.control_plane.groups import JOIN_SECONDS, Group, joined, refusal_of
from tests.support import certificates
from tests.support.hostile import Stranger, listening_ports
from tests.support.leftovers import nothing_left
from tests.support.processes import Process, ProcessGroup, ReservedPorts, wait_until
from tf_strategies.control_plane import stream_handshake
from tf_strategies.secret import SECRET_FILE
from tf_strategies.tls import TLS_FOLDER

pytestmark = [pytest.mark.any_line, pytest.mark.waits]
SECRET = bytes(range(32))
_MOST_KIB = 64 << 10  # how much more memory a process may hold under attack
_ENDED = ("OK", "UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "INTERNAL", "CANCELLED", "UNKNOWN")


@pytest.fixture
def group(tmp_path, monkeypatch):
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    path.write_text(SECRET.hex())
    monkeypatch.setenv(SECRET_FILE, str(path))
    with ReservedPorts(3) as ports, ProcessGroup(tmp_path) as processes:
        with nothing_left(processes, ports.ports):
            yield Group(processes, ports.addresses)
        processes.print_logs()


def resident_kib(worker: Process) -> int:
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{worker.pid}/status").read_text()).group(1))


def resident_kib_at_end(worker: Process) -> int:
    """The most memory it ever held, while it is still there; 0 when it has ended."""
    try:
        return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{worker.pid}/status").read_text()).group(1))
    except (OSError, AttributeError):
        return 0


def wait_for_listening(worker: Process, address: str) -> None:
    port = int(address.rpartition(":")[2])
    wait_until(lambda: port in listening_ports(worker.pid), JOIN_SECONDS, f"{worker.name} to listen")


def hello(rank: object, task: object, **terms) -> dict:
    return {"type": "hello", "rank": rank, "task": task, "process": "a stranger", "terms": terms}


# ---- strangers: they do not know the secret


def _refused_at_the_door(stranger: Stranger, *requests: bytes) -> None:
    """Says something that is no handshake: the answer is a challenge at most."""
    answers, code = stranger.say(*requests)
    assert len(answers) <= 1 and all(len(each) == 65 for each in answers), answers
    assert code in _ENDED, code


def _reflected(stranger: Stranger) -> None:
    """Sends the other end's proof back to it, over a second stream too."""
    opening = stream_handshake.connect(b"x").opening
    challenge = stranger.say(opening)[0][0]
    _refused_at_the_door(stranger, opening, challenge[33:])
    _refused_at_the_door(stranger, opening[:9] + challenge[1:33], challenge[33:])


def _replayed(stranger: Stranger) -> None:
    """Repeats what a member has said, byte by byte."""
    recorded = stranger.record_join(hello(9, "worker 9"), secret=SECRET)
    assert len(recorded) == 3
    _refused_at_the_door(stranger, *recorded)


def _half_open(stranger: Stranger) -> None:
    for _ in range(1000):
        stranger.connect()


_OPENING = stream_handshake.connect(SECRET).opening

STRANGERS: Dict[str, Callable[[Stranger], object]] = {
    "random bytes": lambda it: it.send_nonsense(40),
    "torn HTTP/2, ten kinds": lambda it: it.send_torn_http2(),
    "a TLS hello": lambda it: it.connect(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(512)),
    "UCX's greeting and a write request": lambda it: it.connect(
        struct.pack("<QQQ", 0x1CE1CE, 1, 0x7FFF00000000) + b"\x13" + bytes(64)
    ),
    "another method": lambda it: it.call_elsewhere(),
    "an empty message": lambda it: _refused_at_the_door(it, b""),
    "JSON without a handshake": lambda it: _refused_at_the_door(it, b'{"type":"hello","rank":1}'),
    "a message of 4 MiB": lambda it: _refused_at_the_door(it, b"x" * (4 << 20)),
    "an opening cut short": lambda it: _refused_at_the_door(it, _OPENING[:-1]),
    "an opening that is too long": lambda it: _refused_at_the_door(it, _OPENING + b"\0"),
    "an opening of another protocol": lambda it: _refused_at_the_door(it, b"TFSTCP01" + _OPENING[8:]),
    "an opening and no proof": lambda it: _refused_at_the_door(it, _OPENING),
    "no secret": lambda it: _refused_at_the_door(it, stream_handshake.connect(b"").opening, bytes(32)),
    "another secret": lambda it: _refused_at_the_door(it, _OPENING, os.urandom(32), os.urandom(100)),
    "a proof that is empty": lambda it: _refused_at_the_door(it, _OPENING, b""),
    "a proof of 1 MiB": lambda it: _refused_at_the_door(it, _OPENING, bytes(1 << 20)),
    "the other end's proof, sent back": _reflected,
    "a recorded session, repeated": _replayed,
    "300 streams that say nothing": lambda it: it.open_idle(silent=0, greeted=300),
    "1,000 half-open connections": _half_open,
}

# ---- members that lie: they know the secret


def _lies(*messages: object) -> Callable[[Stranger], None]:
    def attack(stranger: Stranger) -> None:
        answers, _ = stranger.join_with(*messages, secret=SECRET)
        assert all(answer["type"] == "refused" for answer in answers), answers

    return attack


def _breaks_off(answers: int, sealed: Callable[..., list]) -> Callable[[Stranger], None]:
    """Sends messages that would be answered by a refusal each, if they were read; the stream ends at the bad one instead.

    The end of the stream may overtake the answers to those before, so there may be fewer than `answers`.
    """

    def attack(stranger: Stranger) -> None:
        found, _ = stranger.join_with({"type": "leave"}, secret=SECRET, sealed=sealed)
        assert len(found) <= answers, found

    return attack


MEMBERS: Dict[str, Callable[[Stranger], object]] = {
    "no JSON": _lies(b"\xff" * 1000),
    "JSON nested too deep": _lies(b"[" * 100_000),
    "JSON that is no object": _lies(b"[1]"),
    "a sealed message of 4 MiB": _lies(b"x" * (4 << 20)),
    "a leave before the hello": _lies({"type": "leave"}),
    "a message that only rank 0 sends": _lies({"type": "abort", "code": 4, "message": "stop"}),
    "a report before the hello": _lies(
        {"type": "report", "code": 4, "message": "stop", "instance": 0, "peer": 0, "epoch": 1}
    ),
    "a rank that does not exist": _lies(hello(7, "worker 7")),
    "a negative rank": _lies(hello(-1, "worker 1")),
    "a rank of 80 bits": _lies(hello(1 << 80, "worker 1")),
    "a rank that is no number": _lies(hello("1", 1)),
    "the rank of another task": _lies(hello(2, "worker 1")),
    "terms that are no object": _lies({**hello(1, "worker 1"), "terms": "mine"}),
    "a flood after a hello": _lies(hello(9, "worker 9"), *[{"type": "waiting", "instance": 1}] * 2000),
    "a message without a seal": _breaks_off(0, lambda seal, message: [message]),
    "a message that is repeated": _breaks_off(1, lambda seal, message: [seal(message)] * 2),
    "messages out of order": _breaks_off(0, lambda seal, message: [seal(message), seal(message)][::-1]),
    "a message that was changed": _breaks_off(0, lambda seal, message: [seal(message)[:-1] + b"]"]),
}
ATTACKS = {**STRANGERS, **MEMBERS}

# ---- at a job with TLS: who knows the secret, and would talk without TLS or with less


def _plain(stranger: Stranger) -> None:
    answers, code = stranger.say(_OPENING)
    assert (answers, code) == ([], "UNAVAILABLE")


def _handshake(stranger: Stranger, most: ssl.TLSVersion, folder: str = "") -> None:
    """Says a whole hello of a member after a handshake with a certificate of another authority, or without one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode, context.maximum_version = False, ssl.CERT_NONE, most
    context.set_alpn_protocols(["h2"])
    if folder:
        context.load_cert_chain(f"{folder}/task.crt", f"{folder}/task.key")
    with contextlib.suppress(OSError), context.wrap_socket(stranger.opened()) as wrapped:
        wrapped.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        assert wrapped.recv(1) == b"", "it is let in"


DOWNGRADES: Dict[str, Callable[[Stranger, str], object]] = {
    "HTTP/2 without TLS": lambda it, _: _plain(it),
    "nonsense": lambda it, _: it.send_nonsense(10),
    "torn HTTP/2": lambda it, _: it.send_torn_http2(),
    "a TLS hello and silence": lambda it, _: it.connect(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "TLS 1.3 without a certificate": lambda it, _: _handshake(it, ssl.TLSVersion.TLSv1_3),
    "TLS 1.2 without a certificate": lambda it, _: _handshake(it, ssl.TLSVersion.TLSv1_2),
    "TLS 1.3, another authority": lambda it, other: _handshake(it, ssl.TLSVersion.TLSv1_3, other),
    "TLS 1.2, another authority": lambda it, other: _handshake(it, ssl.TLSVersion.TLSv1_2, other),
}


def attack(stranger: Stranger) -> None:
    for kind, run in ATTACKS.items():
        print(f"attack: {kind}", flush=True)
        run(stranger)


def test_there_are_thirty_kinds_of_attacks() -> None:
    assert len(ATTACKS) >= 30


def test_a_job_forms_while_strangers_are_at_its_port(group):
    first = group.start(0, ["barrier"], timeout=90)
    wait_for_listening(first, group.addresses[0])
    before = resident_kib(first)
    with Stranger(group.addresses[0], seed=1) as stranger:
        attack(stranger)
        others = [group.start(rank, ["barrier"], timeout=90) for rank in (1, 2)]
        assert all(worker.wait(90) == 0 for worker in others)
        assert resident_kib_at_end(first) - before < _MOST_KIB
    assert first.wait(15) == 0
    assert "aborts=0" in first.log()
    assert "worker 0 (" in first.log() and "refused a connection from ipv4:127.0.0.1" in first.log()


def test_a_running_job_is_unharmed_by_strangers_at_its_port(group, tmp_path):
    go = tmp_path / "go"
    workers = group.start_all(["barrier"], ["hold_for_file", str(go)], ["exchange", {"still": "here"}])
    joined(workers)
    before = resident_kib(workers[0])
    with Stranger(group.addresses[0], seed=2) as stranger:
        attack(stranger)
        for index in (1, 2):
            answers, _ = stranger.join_with(hello(index, f"worker {index}"), secret=SECRET)
            assert [answer["type"] for answer in answers] == ["refused"]
            assert "two processes are" in answers[0]["message"]
        assert resident_kib(workers[0]) - before < _MOST_KIB
        go.touch()
        assert [worker.wait(20) for worker in workers] == [0, 0, 0]
    assert all("aborts=0" in worker.log() and "GATHERED" in worker.log() for worker in workers)


def test_a_job_with_tls_forms_while_strangers_try_less(group, tmp_path, monkeypatch):
    other = certificates.make(tmp_path / "another authority")
    monkeypatch.setenv(TLS_FOLDER, certificates.make(tmp_path / "tls"))
    first = group.start(0, ["barrier"], timeout=90)
    wait_for_listening(first, group.addresses[0])
    with Stranger(group.addresses[0], seed=3) as stranger:
        for kind, run in DOWNGRADES.items():
            print(f"attack: {kind}", flush=True)
            run(stranger, other)
        others = [group.start(rank, ["barrier"], timeout=90) for rank in (1, 2)]
        assert all(worker.wait(90) == 0 for worker in [first, *others])
    assert "aborts=0" in first.log()


def test_workers_without_the_secret_are_told_what_to_set(group, tmp_path, monkeypatch):
    first = group.start(0, ["barrier"], timeout=40)
    another = tmp_path / "another"
    another.touch(mode=0o600)
    another.write_text("ab" * 32)
    workers = []
    for rank, path in ((1, ""), (2, str(another))):
        monkeypatch.setenv(SECRET_FILE, path)
        workers.append(group.start(rank, ["barrier"], timeout=40))
    reasons = ("it has a secret, and this task has none", "it does not know the secret of this cluster")
    for rank, worker, reason in zip((1, 2), workers, reasons):
        refusal = refusal_of(worker)
        assert f"{group.name(rank)} does not trust {group.name(0)}: {reason}" in refusal
        assert "give all tasks the same file as TF_STRATEGIES_SECRET_FILE" in refusal
    for reason in ("this task has a secret, and it has none", "it does not accept the secret of this task"):
        assert re.search(
            rf"worker 0 .* refused a connection from ipv4:127\.0\.0\.1:\d+: {reason}", first.log()
        )
    first.kill()
